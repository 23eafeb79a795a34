"""Code from outside the package: modules of `--import`, packages with entry points, and who registered what.

A module registers environments, agents or objectives when it is imported. A run remembers the modules it needs
(`RunConfig.imports`), and whatever reads the run imports them first (`require`).
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import sys
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path

from homing.compile import export_cache
from homing.errors import ConfigError, MissingModuleError, shown

ENVS, AGENTS = "homing.envs", "homing.agents"

_loaded: set[str] = set()  # groups of entry points
_asked: dict[str, None] = {}  # modules of --import, in order
_owners: dict[tuple[str, str], str] = {}  # (group, name) -> the module that registered it


def import_modules(names: Sequence[str]) -> None:
    """Import the modules of `--import`; the current folder is searched too."""
    for name in names:
        check_name(name)
        if not _import(name):
            raise ConfigError(
                f"--import {name}: there is no module of this name; run from its folder, or install it"
            )
        _asked[name] = None


def require(names: Iterable[str]) -> None:
    """Import the modules that a run needs.

    Where one is missing and others were named by `--import`, those may stand in for it: whether they do shows
    when the run's names are looked up.
    """
    for name in names:
        check_name(name)
        if not _import(name) and not _asked:
            raise MissingModuleError(
                f"this run needs the module {name}: run from its folder, or install it, or pass --import"
            )


def check_name(name: object) -> None:
    """Refuse what is no dotted name of a module."""
    if not isinstance(name, str) or not all(part.isidentifier() for part in name.split(".")):
        raise ConfigError(f"a module is named as in Python, for instance my_module, not {shown(name)}")


def _import(name: str) -> bool:
    """Import a module and turn the cache of traced programs off; False where there is none of this name."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
        importlib.invalidate_caches()
    try:
        importlib.import_module(name)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            return False
        raise ConfigError(f"the module {name} fails on import: {type(error).__name__}: {error}") from error
    if name.partition(".")[0] != "homing":
        export_cache.turn_off()
    return True


def note_owner(group: str, name: str, module: str | None) -> None:
    """Remember which module registered a name; a script or a notebook cannot be imported again."""
    if module and module != "__main__" and module.partition(".")[0] != "homing":
        _owners[group, name] = module
    else:
        _owners.pop((group, name), None)


def calling_module() -> str | None:
    """The module that called the function which asks."""
    return sys._getframe(2).f_globals.get("__name__")


def modules_for(agent: str, envs: Iterable[str | None]) -> tuple[str, ...]:
    """The modules that a run needs: those of `--import`, and those that registered its agent and environments."""
    names = [(AGENTS, agent), *((ENVS, env) for env in envs if env is not None)]
    owners = [_owners[key] for key in names if key in _owners]
    return tuple(dict.fromkeys([*_asked, *owners]))


def load_entry_points(group: str) -> None:
    """Load the packages that announce themselves in a group, once; a broken one is a warning.

    An entry point names a module, whose import registers, or a function without arguments that does.
    """
    if group in _loaded:
        return
    _loaded.add(group)  # first: a plugin may look names up itself
    for point in importlib.metadata.entry_points(group=group):
        try:
            loaded = point.load()
            if callable(loaded):
                loaded()
        except Exception as error:
            package = point.dist.name if point.dist is not None else point.value
            warnings.warn(
                f"the plugin {point.name} of the package {package} is left out: {type(error).__name__}: {error}",
                stacklevel=2,
            )
        export_cache.turn_off()
