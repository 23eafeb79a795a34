"""Merging of bodies without a joint into their parents.

Positions are written with six decimals, as brax does it, so that models from the same file are identical.
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
        moved = np.any(pos) or np.any(quat[1:])
        for part in child:
            if part.tag in PLACED and moved:
                _place(part, pos, quat)
            parent.append(part)
        parent.remove(child)


def _place(part: ElementTree.Element, pos: np.ndarray, quat: np.ndarray) -> None:
    """Express a part of a body at `pos`, `quat` in the frame of the body's parent."""
    if "fromto" in part.attrib:
        ends = _numbers(part, "fromto", "").reshape(2, 3)
        _write(part, "fromto", np.concatenate([pos + _rotated(end, quat) for end in ends]))
        return
    rot = np.zeros(4)
    mujoco.mju_mulQuat(rot, quat, _numbers(part, "quat", "1 0 0 0"))
    _write(part, "pos", pos + _rotated(_numbers(part, "pos", "0 0 0"), quat))
    _write(part, "quat", rot)


def _rotated(vector: np.ndarray, quat: np.ndarray) -> np.ndarray:
    rotated = np.zeros(3)
    mujoco.mju_rotVecQuat(rotated, vector, quat)
    return rotated


def _numbers(element: ElementTree.Element, name: str, default: str) -> np.ndarray:
    return np.array([float(word) for word in element.get(name, default).split()])


def _write(element: ElementTree.Element, name: str, values: np.ndarray) -> None:
    element.set(name, " ".join(f"{value:f}" for value in values))
