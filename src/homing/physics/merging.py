"""Merging of bodies without a joint into their parents.

Positions are written with six decimals, as brax does it, so that models from the same file are identical.
"""

from __future__ import annotations

import copy
from typing import NamedTuple
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import mujoco
import numpy as np

PLACED = ("body", "geom", "site", "camera")
CLASSED = ("geom", "site", "camera", "light")  # take the class of the body that they are in
TURNS = ("euler", "axisangle", "xyaxes", "zaxis")
NAMELESS = "nameless body "


class Inertia(NamedTuple):
    """Mass, its centre [3] and inertia [3, 3] about it, in the frame of a body."""

    mass: float
    centre: np.ndarray
    matrix: np.ndarray

    def placed(self, pos: np.ndarray, quat: np.ndarray) -> Inertia:
        """The same in the frame of the body's parent, in which the body is at `pos`, `quat`."""
        turn = np.zeros(9)
        mujoco.mju_quat2Mat(turn, quat)
        rot = turn.reshape(3, 3)
        return Inertia(self.mass, pos + rot @ self.centre, rot @ self.matrix @ rot.T)

    def plus(self, other: Inertia) -> Inertia:
        """Both together."""
        parts = [part for part in (self, other) if part.mass > 0]
        if len(parts) < 2:
            return parts[0] if parts else self
        mass = self.mass + other.mass
        centre = (self.mass * self.centre + other.mass * other.centre) / mass
        return Inertia(mass, centre, sum(part._about(centre) for part in parts))

    def _about(self, point: np.ndarray) -> np.ndarray:
        arm = self.centre - point
        return self.matrix + self.mass * (arm @ arm * np.eye(3) - np.outer(arm, arm))


def merged(xml: str) -> str:
    """MJCF text in which every body has a joint."""
    root = ElementTree.fromstring(xml)
    Merger(root).merge(root)
    return ElementTree.tostring(root, encoding="unicode")


class Merger:
    """Merges the bodies of one text.

    angles:   the compiler's settings of angles
    inertias: of the bodies, by element; empty where all follow from geoms
    """

    def __init__(self, root: Element):
        compiler = {name: value for part in root.iter("compiler") for name, value in part.items()}
        self.angles = {name: compiler[name] for name in ("angle", "eulerseq") if name in compiler}
        given = compiler.get("inertiafromgeom") != "true" and next(root.iter("inertial"), None) is not None
        self.inertias = _inertias(root) if given else {}

    def merge(self, parent: Element) -> None:
        """Merge the bodies without a joint below an element into it."""
        for child in list(parent):
            self.merge(child)
            if child.tag != "body" or any(part.tag in ("joint", "freejoint") for part in child):
                continue
            pos, quat = _numbers(child, "pos", "0 0 0"), self._quat(child)
            quat = quat / np.linalg.norm(quat)
            moved = np.any(pos) or np.any(quat[1:])
            self._merge_inertia(parent, child, pos, quat)
            _hand_down_class(child)
            for part in child:
                if part.tag in PLACED and moved:
                    self._place(part, pos, quat)
                parent.append(part)
            parent.remove(child)

    def _merge_inertia(self, parent: Element, child: Element, pos: np.ndarray, quat: np.ndarray) -> None:
        """Add the mass of a body to its parent's, where one of them is given and not that of geoms."""
        own, above = child.find("inertial"), parent.find("inertial")
        if own is not None:
            child.remove(own)
        if not self.inertias or parent.tag == "worldbody":
            return
        if parent not in self.inertias:
            raise ValueError(
                f"a body without a joint is in a <{parent.tag}>; put it into a body, with its mass"
            )
        both = self.inertias[parent].plus(self.inertias[child].placed(pos, quat))
        self.inertias[parent] = both
        if own is None and above is None:
            return
        if above is not None:
            parent.remove(above)
        xx, yy, zz = np.diagonal(both.matrix)
        entries = (xx, yy, zz, both.matrix[0, 1], both.matrix[0, 2], both.matrix[1, 2])
        words = lambda values: " ".join(repr(float(value)) for value in values)
        inertial = {"mass": repr(both.mass), "pos": words(both.centre), "fullinertia": words(entries)}
        parent.insert(0, Element("inertial", inertial))

    def _place(self, part: Element, pos: np.ndarray, quat: np.ndarray) -> None:
        """Express a part of a body at `pos`, `quat` in the frame of the body's parent."""
        if "fromto" in part.attrib:
            ends = _numbers(part, "fromto", "").reshape(2, 3)
            _write(part, "fromto", np.concatenate([pos + _rotated(end, quat) for end in ends]))
            return
        rot = np.zeros(4)
        mujoco.mju_mulQuat(rot, quat, self._quat(part))
        _write(part, "pos", pos + _rotated(_numbers(part, "pos", "0 0 0"), quat))
        _write(part, "quat", rot)

    def _quat(self, element: Element) -> np.ndarray:
        """The orientation of an element, however it is given; only `quat` remains."""
        for kind in TURNS:
            if kind in element.attrib:
                return self._resolved(kind, element.attrib.pop(kind))
        return _numbers(element, "quat", "1 0 0 0")

    def _resolved(self, kind: str, words: str) -> np.ndarray:
        """A quaternion, by MuJoCo's reading of an orientation."""
        root = Element("mujoco")
        ElementTree.SubElement(root, "compiler", self.angles)
        ElementTree.SubElement(ElementTree.SubElement(root, "worldbody"), "body", {kind: words})
        return _compiled(root).body_quat[1]


def _inertias(root: Element) -> dict[Element, Inertia]:
    """Inertias of all bodies, as MuJoCo has them before any is merged."""
    whole = copy.deepcopy(root)
    for part in whole.iter("compiler"):
        part.attrib.pop("settotalmass", None)
        part.attrib.pop("fusestatic", None)
    for number, body in enumerate(whole.iter("body")):
        body.attrib.setdefault("name", f"{NAMELESS}{number}")
    model, found = _compiled(whole), {}
    for body, twin in zip(root.iter("body"), whole.iter("body"), strict=True):
        at = model.body(twin.attrib["name"])
        principal = Inertia(at.mass.item(), np.zeros(3), np.diag(at.inertia))
        found[body] = principal.placed(at.ipos, at.iquat)
    return found


def _compiled(root: Element) -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(ElementTree.tostring(root, encoding="unicode"))


def _hand_down_class(body: Element) -> None:
    """Give the class of a body to its parts that name none."""
    name = body.get("childclass")
    if name is None:
        return
    for part in body:
        key = "childclass" if part.tag == "body" else "class"
        if part.tag in ("body", *CLASSED) and key not in part.attrib:
            part.set(key, name)


def _rotated(vector: np.ndarray, quat: np.ndarray) -> np.ndarray:
    rotated = np.zeros(3)
    mujoco.mju_rotVecQuat(rotated, vector, quat)
    return rotated


def _numbers(element: Element, name: str, default: str) -> np.ndarray:
    return np.array([float(word) for word in element.get(name, default).split()])


def _write(element: Element, name: str, values: np.ndarray) -> None:
    element.set(name, " ".join(f"{value:f}" for value in values))
