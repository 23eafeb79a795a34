"""WebAssembly in its binary format: instructions, functions and modules, as bytes."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

I32, F32, F64, V128 = 0x7F, 0x7D, 0x7C, 0x7B
PAGE = 65536  # bytes of a page of memory
VOID = 0x40  # type of a block that leaves nothing on the stack

# Instructions without operands in the code, by the names of the specification.
PLAIN = {
    "end": 0x0B,
    "else": 0x05,
    "drop": 0x1A,
    "i32.eqz": 0x45,
    "i32.lt_s": 0x48,
    "i32.lt_u": 0x49,
    "i32.gt_s": 0x4A,
    "i32.le_s": 0x4C,
    "i32.ge_s": 0x4E,
    "f32.lt": 0x5D,
    "f32.gt": 0x5E,
    "f32.ne": 0x5C,
    "i32.add": 0x6A,
    "i32.sub": 0x6B,
    "i32.mul": 0x6C,
    "i32.and": 0x71,
    "i32.or": 0x72,
    "f32.add": 0x92,
    "f32.mul": 0x94,
    "f32.min": 0x96,
    "f32.max": 0x97,
    "f64.convert_i32_s": 0xB7,
    "f64.promote_f32": 0xBB,
    "f32.demote_f64": 0xB6,
    "select": 0x1B,
}
# Instructions on vectors of four lanes; all begin with the byte 0xFD.
VECTOR = {
    "i32x4.splat": 17,
    "f32x4.splat": 19,
    "i32x4.eq": 55,
    "i32x4.ne": 56,
    "i32x4.lt_s": 57,
    "i32x4.gt_s": 59,
    "i32x4.le_s": 61,
    "i32x4.ge_s": 63,
    "f32x4.eq": 65,
    "f32x4.ne": 66,
    "f32x4.lt": 67,
    "f32x4.gt": 68,
    "f32x4.le": 69,
    "f32x4.ge": 70,
    "v128.not": 77,
    "v128.and": 78,
    "v128.or": 80,
    "v128.xor": 81,
    "v128.bitselect": 82,
    "f32x4.ceil": 103,
    "f32x4.floor": 104,
    "f32x4.trunc": 105,
    "f32x4.nearest": 106,
    "i32x4.abs": 160,
    "i32x4.neg": 161,
    "i32x4.shl": 171,
    "i32x4.shr_s": 172,
    "i32x4.shr_u": 173,
    "i32x4.add": 174,
    "i32x4.sub": 177,
    "i32x4.mul": 181,
    "i32x4.min_s": 182,
    "i32x4.max_s": 184,
    "f32x4.abs": 224,
    "f32x4.neg": 225,
    "f32x4.sqrt": 227,
    "f32x4.add": 228,
    "f32x4.sub": 229,
    "f32x4.mul": 230,
    "f32x4.div": 231,
    "f32x4.min": 232,
    "f32x4.max": 233,
    "i32x4.trunc_sat_f32x4_s": 248,
    "f32x4.convert_i32x4_s": 250,
}
# Loads and stores: first byte or vector opcode, and log2 of the alignment that is promised.
SCALAR_MEMORY = {"i32.load": 0x28, "f32.load": 0x2A, "i32.store": 0x36, "f32.store": 0x38}
VECTOR_MEMORY = {"v128.load": 0, "v128.load32_splat": 9, "v128.store": 11}
INDEXED = {"local.get": 0x20, "local.set": 0x21, "local.tee": 0x22, "call": 0x10, "br": 0x0C, "br_if": 0x0D}
BLOCKS = {"block": 0x02, "loop": 0x03, "if": 0x04}


def unsigned(value: int) -> bytes:
    """LEB128 of a whole number ≥ 0."""
    out = bytearray()
    while True:
        low, value = value & 0x7F, value >> 7
        out.append(low | (0x80 if value else 0))
        if not value:
            return bytes(out)


def signed(value: int) -> bytes:
    """LEB128 of a whole number."""
    out = bytearray()
    while True:
        low, value = value & 0x7F, value >> 7
        done = (value == 0 and not low & 0x40) or (value == -1 and low & 0x40)
        out.append(low | (0 if done else 0x80))
        if done:
            return bytes(out)


def vector(items: Sequence[bytes]) -> bytes:
    """A counted sequence."""
    return unsigned(len(items)) + b"".join(items)


class Code:
    """Instructions of a function, written one after the other."""

    def __init__(self) -> None:
        self.bytes = bytearray()

    def __len__(self) -> int:
        return len(self.bytes)

    def op(self, *names: str) -> Code:
        """Instructions without operands."""
        for name in names:
            if name in PLAIN:
                self.bytes.append(PLAIN[name])
            else:
                self.bytes += b"\xfd" + unsigned(VECTOR[name])
        return self

    def with_index(self, name: str, index: int) -> Code:
        """An instruction on a local, a function or a label."""
        self.bytes += bytes([INDEXED[name]]) + unsigned(index)
        return self

    def memory(self, name: str, offset: int) -> Code:
        """A load or store at the address on the stack plus an offset."""
        if name in SCALAR_MEMORY:
            self.bytes += bytes([SCALAR_MEMORY[name], 2]) + unsigned(offset)
        else:
            align = 2 if name == "v128.load32_splat" else 0
            self.bytes += b"\xfd" + unsigned(VECTOR_MEMORY[name]) + bytes([align]) + unsigned(offset)
        return self

    def i32(self, value: int) -> Code:
        """A constant."""
        self.bytes += b"\x41" + signed(value)
        return self

    def f32(self, value: float) -> Code:
        """A constant."""
        self.bytes += b"\x43" + struct.pack("<f", value)
        return self

    def start(self, kind: str) -> Code:
        """Begin a block, a loop or an `if`; `op("end")` ends it."""
        self.bytes += bytes([BLOCKS[kind], VOID])
        return self

    def copy_bytes(self) -> Code:
        """`memory.copy`: takes the destination, the source and the number of bytes from the stack."""
        self.bytes += b"\xfc\x0a\x00\x00"
        return self

    def truncate(self) -> Code:
        """float64 to int32, saturating."""
        self.bytes += b"\xfc\x02"
        return self


@dataclass
class Function:
    """A function: types of its parameters, of its other locals, and its code; it returns nothing."""

    params: tuple[int, ...]
    locals: tuple[int, ...]
    code: Code
    export: str | None = None


@dataclass
class Module:
    """Functions that share one memory; imports come from `host`, in the order of their indices."""

    imports: list[tuple[str, int]] = field(default_factory=list)  # name and number of float64 parameters
    functions: list[Function] = field(default_factory=list)

    def add(self, function: Function) -> int:
        """Index of the function among this module's own."""
        self.functions.append(function)
        return len(self.functions) - 1

    def encode(self, pages: int) -> bytes:
        """The module; its memory is imported, so that whoever runs it can fill it first."""
        host = [
            _name("host") + _name(name) + b"\x00" + unsigned(k) for k, (name, _) in enumerate(self.imports)
        ]
        kinds = [b"\x60" + vector([bytes([F64])] * n) + vector([bytes([F64])]) for _, n in self.imports]
        kinds += [b"\x60" + vector([bytes([p]) for p in f.params]) + vector([]) for f in self.functions]
        first = len(self.imports)
        own = [unsigned(first + k) for k in range(len(self.functions))]
        exports = [
            _name(f.export) + b"\x00" + unsigned(first + k) for k, f in enumerate(self.functions) if f.export
        ]
        sections = [
            (1, vector(kinds)),
            (2, vector([*host, _name("host") + _name("memory") + b"\x02\x00" + unsigned(pages)])),
            (3, vector(own)),
            (7, vector(exports)),
            (10, vector([_body(f) for f in self.functions])),
        ]
        body = b"".join(bytes([id]) + unsigned(len(data)) + data for id, data in sections)
        return b"\x00asm\x01\x00\x00\x00" + body


def _name(text: str) -> bytes:
    data = text.encode()
    return unsigned(len(data)) + data


def _body(function: Function) -> bytes:
    locals_ = vector([unsigned(1) + bytes([kind]) for kind in function.locals])
    data = locals_ + bytes(function.code.bytes) + bytes([PLAIN["end"]])
    return unsigned(len(data)) + data
