"""Errors that a user can act on: one message, which names the fix."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class HomingError(Exception):
    """Base of all errors raised on purpose; the command line prints it without a traceback."""


class ConfigError(HomingError, ValueError):
    """A setting that cannot work, found before anything is compiled."""


class UnknownNameError(HomingError, KeyError):
    """A name that is in no table."""

    def __str__(self) -> str:  # KeyError would show the repr
        return str(self.args[0])


class MissingModuleError(HomingError):
    """A module of the user's that a run needs and that cannot be imported."""


def shown(value: object) -> str:
    """A value for a message: short, whatever it is."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def nearest(name: object, known: Iterable[str], count: int = 3) -> list[str]:
    """The known names most like `name`, best first, and those that contain it."""
    known = sorted(known)
    lowered = str(name).lower().replace("-", "_")
    close = difflib.get_close_matches(lowered, known, n=count, cutoff=0.55)
    holding = [k for k in known if lowered and (lowered in k or k in lowered)]
    return list(dict.fromkeys(close + holding))[:count]


def unknown(kind: str, name: object, known: Iterable[str]) -> UnknownNameError:
    """An error that answers a wrong name with the nearest right ones (or all, if they are few)."""
    known = sorted(set(known))
    offers = nearest(name, known)
    if offers:
        hint = f"did you mean {' or '.join(repr(o) for o in offers)}?"
    elif len(known) <= 12:
        hint = f"known: {', '.join(known)}"
    else:
        hint = f"{len(known)} are known, for instance {', '.join(known[:6])}"
    return UnknownNameError(f"unknown {kind} {shown(name)}; {hint}")


def missing_package(what: str, extra: str, error: ModuleNotFoundError) -> HomingError:
    """An error that names the extra which installs what something optional needs."""
    return HomingError(
        f"{what} needs the package {error.name}; install it with "
        f"`pip install 'homing[{extra}]'` (from a checkout: `pip install '.[{extra}]'`)"
    )
