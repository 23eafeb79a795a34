"""Kernel launches (fusions on a CPU) and memory traffic of a compiled program, parsed from its HLO text."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import NamedTuple

# Aliases of data and completions of asynchronous operations, which launch nothing.
FREE = {
    *("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "opt-barrier"),
    *("add-dependency", "partition-id", "replica-id", "copy-done", "async-done", "async-update"),
    *("all-reduce-done", "all-gather-done", "fusion-done"),
}
PARTIAL = {"dynamic-slice", "slice", "gather"}  # read only as many bytes as they return
WIDTHS = {"pred": 8, "s4": 4, "u4": 4, "c64": 64, "c128": 128, "token": 0}

_HEADER = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = (.*)$")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_ARRAY = re.compile(r"\b([a-z][a-z0-9]*)\[([\d,]*)\]")


class Cost(NamedTuple):
    """Cost of one execution."""

    launches: int
    bytes: int


class Instruction(NamedTuple):
    """A parsed HLO instruction."""

    name: str
    shape: str
    opcode: str
    operands: list[str]
    rest: str
    is_root: bool


def cost(text: str) -> Cost:
    """Launches, and bytes that they read and write.

    Loops are multiplied by their known trip count, or 1; conditionals count their most expensive branch.
    """
    entry, computations = _computations(text)
    found: dict[str, Cost] = {}

    def of(name: str) -> Cost:
        if name not in found:
            shapes = {i.name: i.shape for i in computations[name]}
            found[name] = _sum([_instruction_cost(i, shapes, computations, of) for i in computations[name]])
        return found[name]

    return of(entry)


def _sum(costs: list[Cost], times: int = 1) -> Cost:
    return Cost(times * sum(c.launches for c in costs), times * sum(c.bytes for c in costs))


def _computations(text: str) -> tuple[str, dict[str, list[Instruction]]]:
    """The entry's name, and the instructions of every computation."""
    entry, name, found = "", "", {}
    for line in text.splitlines():
        if header := _HEADER.match(line):
            name = header[2]
            found[name] = []
            entry = name if header[1] else entry
        elif name and (match := _INSTRUCTION.match(line)):
            found[name].append(_instruction(match[2], match[3], bool(match[1])))
    return entry, found


def _instruction(name: str, text: str, is_root: bool) -> Instruction:
    """Parse `shape opcode(operands), attributes`."""
    space = _end(text, " ")
    opcode, _, after = text[space + 1 :].partition("(")
    close = _end(after, ")")
    operands = re.findall(r"%([\w.\-]+)", after[:close])
    return Instruction(name, text[:space], opcode, operands, after[close:], is_root)


def _end(text: str, letter: str) -> int:
    """Index of the first `letter` outside of brackets."""
    depth = 0
    for i, found in enumerate(text):
        if found == letter and not depth:
            return i
        depth += (found in "({[") - (found in ")}]")
    return len(text)


def _instruction_cost(
    i: Instruction,
    shapes: dict[str, str],
    computations: dict[str, list[Instruction]],
    of: Callable[[str], Cost],
) -> Cost:
    if i.opcode in FREE:
        return Cost(0, 0)
    if i.opcode == "while":
        trips = _TRIPS.search(i.rest)
        return _sum([of(name) for name in _called(i, "condition", "body")], int(trips[1]) if trips else 1)
    if i.opcode == "call":
        return _sum([of(name) for name in _called(i, "to_apply")])
    if i.opcode == "conditional":
        names = _called(i, "branch_computations", "true_computation", "false_computation")
        return max((of(name) for name in names), default=Cost(0, 0), key=lambda cost: cost.launches)
    if i.opcode in ("fusion", "fusion-start"):
        return Cost(1, _fusion_bytes(i, shapes, computations[_called(i, "calls")[0]]))
    return Cost(1, _bytes_moved(i, shapes))


def _called(i: Instruction, *attributes: str) -> list[str]:
    names = []
    for attribute in attributes:
        if found := re.search(rf"\b{attribute}=(?:\{{([^}}]*)\}}|%?([\w.\-]+))", i.rest):
            names += [name.strip().lstrip("%") for name in (found[1] or found[2]).split(",")]
    return names


def size_of(shape: str) -> int:
    """Bytes of a shape such as `f32[8,8]{1,0}`, or of a tuple of shapes."""
    bits = 0
    for kind, sizes in _ARRAY.findall(shape):
        digits = re.search(r"\d+", kind)
        width = WIDTHS.get(kind, int(digits[0]) if digits else 0)
        bits += width * math.prod(int(size) for size in sizes.split(",") if size)
    return bits // 8


def _bytes_moved(i: Instruction, shapes: dict[str, str]) -> int:
    if i.opcode in PARTIAL:
        return 2 * size_of(i.shape)
    if i.opcode == "dynamic-update-slice":  # in place
        return 2 * size_of(shapes.get(i.operands[1], ""))
    result = i.shape
    if i.opcode == "custom-call":  # workspace of a library call is not a result
        result = re.sub(r"\bs8\[\d+\]", "", result)
    return size_of(result) + sum(size_of(shapes.get(name, "")) for name in i.operands)


def _fusion_bytes(i: Instruction, shapes: dict[str, str], inside: list[Instruction]) -> int:
    """Bytes that the fused instructions read of each operand, and write."""
    inner = {j.name: j for j in inside}
    read = 0
    for parameter in (j for j in inside if j.opcode == "parameter"):
        users = [j for j in inside if parameter.name in j.operands]
        whole = size_of(parameter.shape)
        # An array that is only sliced, or updated in place, is not read in full.
        if users and all(j.opcode in PARTIAL and j.operands[0] == parameter.name for j in users):
            whole = min(whole, sum(size_of(j.shape) for j in users))
        elif users and all(
            j.opcode == "dynamic-update-slice" and j.operands[0] == parameter.name for j in users
        ):
            whole = 0
        read += whole
    return read + sum(_written(j, inner) for j in inside if j.is_root)


def _written(root: Instruction, inner: dict[str, Instruction]) -> int:
    if root.opcode == "tuple":
        return sum(_written(inner[name], inner) for name in root.operands)
    while root.opcode == "bitcast":
        root = inner[root.operands[0]]
    if root.opcode == "dynamic-update-slice":
        return size_of(inner[root.operands[1]].shape)
    return size_of(root.shape)
