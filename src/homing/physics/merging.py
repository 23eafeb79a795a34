"""Bodies without a joint do not move against their parents: their parts become the parents'.

Places are written with six digits behind the point and a turn is left out where a body sits at its parent's
origin, as brax does it, so that models are the same.
"""

from __future__ import annotations

from xml.etree import ElementTree

import mujoco
import numpy as np

PLACED = ("body", "geom", "site", "camera")


def merged(xml: str) -> str:
    """MJCF text in which every body has a joint."""
    root = ElementTree.fromstring(xml)
    _merge(root)
    return ElementTree.tostring(root, encoding="unicode")


def _merge(parent: ElementTree.Element) -> None:
    for child in list(parent):
        _merge(child)
        if child.tag != "body" or any(part.tag in ("joint", "freejoint") for part in child):
            continue
        pos, quat = _numbers(child, "pos", "0 0 0"), _numbers(child, "quat", "1 0 0 0")
        for part in child:
            if part.tag in PLACED and np.any(pos):
                _place(part, pos, quat)
            parent.append(part)
        parent.remove(child)


def _place(part: ElementTree.Element, pos: np.ndarray, quat: np.ndarray) -> None:
    """A part of a body at `pos` and `quat`, seen from the body's parent."""
    if "fromto" in part.attrib:
        ends = _numbers(part, "fromto", "").reshape(2, 3)
        _write(part, "fromto", np.concatenate([pos + _turned(end, quat) for end in ends]))
        return
    turn = np.zeros(4)
    mujoco.mju_mulQuat(turn, quat, _numbers(part, "quat", "1 0 0 0"))
    _write(part, "pos", pos + _turned(_numbers(part, "pos", "0 0 0"), quat))
    _write(part, "quat", turn)


def _turned(vector: np.ndarray, quat: np.ndarray) -> np.ndarray:
    turned = np.zeros(3)
    mujoco.mju_rotVecQuat(turned, vector, quat)
    return turned


def _numbers(element: ElementTree.Element, name: str, usual: str) -> np.ndarray:
    return np.array([float(word) for word in element.get(name, usual).split()])


def _write(element: ElementTree.Element, name: str, values: np.ndarray) -> None:
    element.set(name, " ".join(f"{value:f}" for value in values))
