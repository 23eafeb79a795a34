"""The memory of a module under construction, and code on arrays in it: copies, loops over elements, functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from homing.share.values import LANES, WIDTH, Operand, Segment, Value, as_words, compact
from homing.share.wasm import F32, I32, PAGE, V128, Code, Function, Module

UNROLLED = 4  # vectors up to which a loop is written out
SMALL = 64  # elements of a constant up to which it is kept as 32-bit words
WORDS = (1024, 1 << 19)  # addresses of the small constants
CHUNK = 16_000  # bytes of code in one function; browsers compile larger ones slowly
COPY_RUN = 16  # elements from which a run is copied as a block
TABLE_FROM = 96  # runs from which a copy is a loop over a table of addresses
# Locals of every function: counters, then scratch of each type.
ITERATION, LANE, SCRATCH, OTHER = range(4)
FLOAT, VEC, VEC2 = range(4, 7)
LOCALS = (I32, I32, I32, I32, F32, V128, V128)
# Functions of the host: float64 in and out, by their number of arguments.
HOST = {
    **dict.fromkeys(
        ("exp", "log", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh"),
        1,
    ),
    **dict.fromkeys(("atanh", "expm1", "log1p", "cbrt", "exp2", "logistic", "erf"), 1),
    **dict.fromkeys(("atan2", "pow", "rem", "int_div"), 2),
}
HOST_INDEX = {name: k for k, name in enumerate(HOST)}


class Emitter:
    """Memory and code of one module."""

    def __init__(self) -> None:
        self.module = Module(imports=list(HOST.items()))
        self.segments: list[Segment] = []
        self._words, self._next = bytearray(), WORDS[1]
        self._known: dict[tuple[str, bytes], int] = {}
        self._scopes: list[Scope] = []
        self.matmul: int | None = None  # the function for matrix products, once there is one

    # Memory.

    def allocate(self, count: int) -> int:
        """Address of room for elements, in whole vectors."""
        address = self._next
        self._next += 16 * max(1, -(-count // LANES))
        return address

    def fresh(self, shape: Sequence[int], dtype: Any) -> Value:
        """A new array."""
        count = int(np.prod(shape, dtype=np.int64))
        places = self.allocate(count) + WIDTH * np.arange(count, dtype=np.int64)
        return Value(np.dtype(dtype), places=places.reshape(shape))

    def places(self, value: Value) -> np.ndarray:
        """Addresses of the elements; a constant is put into memory."""
        if value.places is not None:
            return value.places
        assert value.data is not None
        if value.size and np.all(value.data == value.data.flat[0]):
            return np.full(value.shape, self._constant(value.data.reshape(-1)[:1], value.dtype))
        first = self._constant(np.ascontiguousarray(value.data), value.dtype)
        return first + WIDTH * np.arange(value.size, dtype=np.int64).reshape(value.shape)

    def _constant(self, data: np.ndarray, dtype: np.dtype) -> int:
        words = as_words(data, dtype)
        key = ("words", words)
        if key in self._known:
            return self._known[key]
        if data.size <= SMALL and WORDS[0] + len(self._words) + len(words) + 16 <= WORDS[1]:
            address = WORDS[0] + len(self._words)
            self._words += words + bytes(-len(words) % 16)
        else:
            address = self.allocate(data.size)
            self.segments.append(compact(address, words, dtype))
        self._known[key] = address
        return address

    @property
    def pages(self) -> int:
        """Pages of memory; the last vector may be read beyond its end."""
        return -(-(self._next + 64) // PAGE)

    def all_segments(self) -> list[Segment]:
        return [Segment(WORDS[0], "words", bytes(self._words)), *self.segments]

    # Code.

    @property
    def code(self) -> Code:
        return self._scopes[-1].code

    @contextmanager
    def scope(self, into: Code | None = None) -> Iterator[Scope]:
        """A sequence of instructions, cut into functions that `into` calls."""
        made = Scope(self, into if into is not None else Code())
        self._scopes.append(made)
        yield made
        made.flush()
        self._scopes.pop()

    def settle(self) -> None:
        """Begin another function if the current one is long."""
        if len(self.code) > CHUNK:
            self._scopes[-1].flush()

    def export(self, name: str, body: Code) -> None:
        """A function that the host can call."""
        self.module.add(Function((), LOCALS, body, name))

    def call(self, function: int) -> None:
        """Call one of the module's own functions."""
        self.code.with_index("call", len(HOST) + function)

    def host(self, name: str) -> None:
        self.code.with_index("call", HOST_INDEX[name])

    # Operands.

    def operand(self, value: Value) -> Operand:
        """The array as elements in a row; written so if it is not."""
        places = self.places(value).reshape(-1)
        if places.size and np.all(places == places[0]):
            return Operand(int(places[0]), splat=True)
        return Operand(self.row(value), splat=False)

    def row(self, value: Value) -> int:
        """Address of the first of all elements in a row."""
        places = self.places(value).reshape(-1)
        if places.size <= 1 or np.all(np.diff(places) == WIDTH):
            return int(places[0]) if places.size else WORDS[0]
        for scope in reversed(self._scopes):
            if value in scope.rows:
                return scope.rows[value]
        address = self.allocate(places.size)
        self.copy(places, address)
        self._scopes[-1].rows[value] = address
        return address

    def copy(self, places: np.ndarray, address: int) -> None:
        """Write the elements at these addresses to a row, which holds none of them."""
        places = places.reshape(-1)
        starts = np.flatnonzero(np.diff(places, prepend=places[:1] - 2 * WIDTH) != WIDTH)
        if len(starts) > TABLE_FROM:
            return self._copy_by_table(places, address)
        for begin, end in zip(starts, [*starts[1:], places.size], strict=True):
            self._copy_run(int(places[begin]), address + WIDTH * int(begin), int(end - begin))

    def _copy_run(self, source: int, target: int, count: int) -> None:
        code = self.code
        if count >= COPY_RUN:
            code.i32(target).i32(source).i32(WIDTH * count).copy_bytes()
            return
        for k in range(count):
            code.i32(0).i32(0).memory("i32.load", source + WIDTH * k).memory("i32.store", target + WIDTH * k)

    def _copy_by_table(self, places: np.ndarray, address: int) -> None:
        table = self._constant(places.astype(np.int32), np.dtype(np.int32))
        with self.loop(WIDTH * places.size, WIDTH):
            code = self.code.with_index("local.get", LANE).with_index("local.get", LANE)
            code.memory("i32.load", table).memory("i32.load", 0).memory("i32.store", address)

    def assign(self, target: int, value: Value) -> None:
        """Copy a whole array to an address."""
        found = self.operand(value)
        if not found.splat or value.size == 1:
            self._copy_run(found.address, target, value.size)
            return
        vectors = -(-value.size // LANES)
        self.each_vector(vectors, target, [found], lambda load: load(0))

    # Loops.

    @contextmanager
    def loop(self, end: int, step: int, local: int = LANE) -> Iterator[None]:
        """Code that is executed with `local` = 0, step, … below `end`, which is at least one step."""
        self.code.i32(0).with_index("local.set", local).start("loop")
        yield
        code = self.code.with_index("local.get", local).i32(step).op("i32.add").with_index("local.tee", local)
        code.i32(end).op("i32.lt_u").with_index("br_if", 0).op("end")

    def each_vector(
        self,
        count: int,
        target: int,
        operands: Sequence[Operand],
        body: Callable[[Callable[[int], None]], None],
    ) -> None:
        """Write `count` vectors; `body` leaves one on the stack, and gets a function that loads operand k."""
        if count <= UNROLLED:
            for k in range(count):
                self.code.i32(0)
                body(lambda n, at=16 * k: self._load(operands[n], at))
                self.code.memory("v128.store", target + 16 * k)
            return
        with self.loop(16 * count, 16):
            self.code.with_index("local.get", LANE)
            body(lambda n: self._load(operands[n], None))
            self.code.memory("v128.store", target)

    def _load(self, operand: Operand, at: int | None) -> None:
        if operand.splat:
            self.code.i32(0).memory("v128.load32_splat", operand.address)
        elif at is None:
            self.code.with_index("local.get", LANE).memory("v128.load", operand.address)
        else:
            self.code.i32(0).memory("v128.load", operand.address + at)

    def each_element(
        self, count: int, body: Callable[[Callable[[Operand, str], Any], Callable[[], Any], int], None]
    ) -> None:
        """Scalar code for every element: `body(load, base, offset)`."""
        if count <= UNROLLED:
            for k in range(count):
                load = lambda o, name, at=WIDTH * k: self.code.i32(0).memory(
                    name, o.address + (0 if o.splat else at)
                )
                body(load, lambda: self.code.i32(0), WIDTH * k)
            return

        def from_loop(operand: Operand, name: str) -> None:
            self.code.i32(0) if operand.splat else self.code.with_index("local.get", LANE)
            self.code.memory(name, operand.address)

        with self.loop(WIDTH * count, WIDTH):
            body(from_loop, lambda: self.code.with_index("local.get", LANE), 0)


class Scope:
    """Code under construction: a chunk that is not yet a function, and arrays that were put in a row in it."""

    def __init__(self, emitter: Emitter, into: Code):
        self._emitter, self.into = emitter, into
        self.code, self.rows = Code(), dict[Value, int]()

    def flush(self) -> None:
        """Make the chunk a function that `into` calls."""
        if len(self.code):
            index = self._emitter.module.add(Function((), LOCALS, self.code))
            self.into.with_index("call", len(HOST) + index)
            self.code = Code()
