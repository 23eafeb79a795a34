"""The robot files that brax ships, as models of ours."""

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from homing.physics import Model

ASSETS = Path(find_spec("brax").submodule_search_locations[0]) / "envs" / "assets"
# Bodies of a file that are no part of the robot.
NOT_THE_ROBOT = {"reacher": ("target",), "pusher": ("object", "goal")}


def brax_file(name: str, without: Iterable[str] | None = None) -> Model:
    """The robot of a file, by default without goals and objects."""
    return Model.from_xml(
        (ASSETS / f"{name}.xml").read_text(), NOT_THE_ROBOT.get(name, ()) if without is None else without
    )
