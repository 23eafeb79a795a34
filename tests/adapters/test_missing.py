"""Without its library an adapter says which extra installs it."""

import importlib
import sys

import pytest

from homing.errors import HomingError


@pytest.mark.parametrize(
    ("module", "package"),
    [("gymnasium", "gymnasium"), ("sb3", "stable_baselines3"), ("gymnax", "gymnax"), ("stoa", "stoa")],
)
def test_a_missing_library_is_named_with_its_extra(module, package, monkeypatch):
    pytest.importorskip("gymnasium")
    monkeypatch.delitem(sys.modules, f"homing.adapters.{module}", raising=False)
    for name in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(HomingError, match=rf"needs the package {package}.*homing\[{module}\]"):
        importlib.import_module(f"homing.adapters.{module}")
    sys.modules.pop(f"homing.adapters.{module}", None)
