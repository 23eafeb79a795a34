"""Traced JAX functions as WebAssembly: every primitive of a jaxpr becomes code on fixed addresses of one memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal
from jax.interpreters import partial_eval

from homing.compile.jaxprs import scan_inputs
from homing.errors import HomingError
from homing.share import elementwise, indexing, reductions
from homing.share.emitter import ITERATION, Emitter
from homing.share.program import Program
from homing.share.values import WIDTH, Segment, Value, check_dtype
from homing.share.wasm import Code

INLINED = {  # primitives that only hold another jaxpr, and the name of the parameter with it
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
    "remat": "jaxpr",
    "checkpoint": "jaxpr",
}
SCATTERS = {"scatter": None, "scatter-add": "add", "scatter-mul": "mul"}
FOLDED = 1 << 22  # elements of a constant up to which operations on constants are computed here


class Translator:
    """Functions on named arrays that keep their place between calls."""

    def __init__(self) -> None:
        self.emitter = Emitter()
        self.buffers: dict[str, Value] = {}

    def buffer(self, name: str, shape: Sequence[int], dtype: Any = np.float32) -> None:
        """A named array, which the host can read and write."""
        self.buffers[name] = self.emitter.fresh(shape, check_dtype(dtype))

    def function(
        self, name: str, compute: Callable[..., Any], inputs: Sequence[str], outputs: Sequence[str]
    ) -> None:
        """Export `name`: it reads the named inputs and writes what `compute` returns to the named outputs."""
        shapes = [jax.ShapeDtypeStruct(self.buffers[n].shape, self.buffers[n].dtype) for n in inputs]
        closed = jax.make_jaxpr(lambda *args: tuple(jax.tree.leaves(compute(*args))))(*shapes)
        lean, _ = partial_eval.dce_jaxpr(closed.jaxpr, [True] * len(closed.out_avals), instantiate=True)
        body = Code()
        with self.emitter.scope(body):
            found = self.evaluate(lean, closed.consts, [self.buffers[n] for n in inputs])
            self._write([self.buffers[n] for n in outputs], found)
        self.emitter.export(name, body)

    def _write(self, targets: Sequence[Value], values: Sequence[Value]) -> None:
        """Assign all at once: a value that lies where another target does is read first."""
        taken = {int(p) for target in targets for p in self.emitter.places(target).reshape(-1)}
        safe = []
        for target, value in zip(targets, values, strict=True):
            if target.shape != value.shape or target.dtype != value.dtype:
                raise HomingError(
                    f"a buffer of {target.shape} {target.dtype} cannot hold {value.shape} {value.dtype}"
                )
            if value.places is not None and not taken.isdisjoint(value.places.reshape(-1).tolist()):
                kept = self.emitter.fresh(value.shape, value.dtype)
                self.emitter.copy(value.places, self.emitter.row(kept))
                value = kept
            safe.append(value)
        for target, value in zip(targets, safe, strict=True):
            if value.size:
                self.emitter.assign(self.emitter.row(target), value)

    def program(self) -> Program:
        """What has been translated, ready for a host."""
        places = {name: (self.emitter.row(v), v.size, v.dtype.kind) for name, v in self.buffers.items()}
        segments: list[Segment] = self.emitter.all_segments()
        return Program(self.emitter.module.encode(self.emitter.pages), self.emitter.pages, segments, places)

    # Jaxprs.

    def evaluate(self, jaxpr: Jaxpr, consts: Sequence[Any], args: Sequence[Value]) -> list[Value]:
        """Code for all equations; returns the outputs."""
        env: dict[Any, Value] = {}
        env.update(zip(jaxpr.constvars, [constant(c) for c in consts], strict=True))
        env.update(zip(jaxpr.invars, args, strict=True))
        read = lambda v: literal(v) if isinstance(v, Literal) else env[v]
        for equation in jaxpr.eqns:
            values = self.equation(equation, [read(v) for v in equation.invars])
            env.update(zip(equation.outvars, values, strict=True))
            self.emitter.settle()
        return [read(v) for v in jaxpr.outvars]

    def equation(self, equation: Any, args: list[Value]) -> list[Value]:
        """Outputs of one equation."""
        name, params = equation.primitive.name, equation.params
        if name in INLINED:
            inner = params[INLINED[name]]
            closed = inner if isinstance(inner, ClosedJaxpr) else ClosedJaxpr(inner, ())
            return self.evaluate(closed.jaxpr, closed.consts, args)
        if name == "optimization_barrier":
            return args
        if name in CONTROL:
            return CONTROL[name](self, args, equation)
        if name == "split":
            return indexing.split(args[0], params)
        out = equation.outvars[0].aval
        check_dtype(out.dtype)
        if name in indexing.VIEWS:
            return [args[0].view(lambda x: indexing.VIEWS[name](x, params))]
        if name == "iota" or (args and all(a.data is not None and a.size <= FOLDED for a in args)):
            return folded(equation, args)
        return [self.compute(name, args, out, params)]

    def compute(self, name: str, args: list[Value], out: Any, params: dict[str, Any]) -> Value:
        """The output of a primitive with one."""
        emitter = self.emitter
        if name in MOVING:
            return MOVING[name](emitter, args, out, params)
        if name in SCATTERS:
            return self._scatter(name, args, params)
        if name == "convert_element_type" and same_bits(args[0].dtype, np.dtype(out.dtype)):
            return Value(np.dtype(out.dtype), args[0].data, args[0].places)
        made = emitter.fresh(out.shape, out.dtype)
        if not made.size:
            return made
        if name in elementwise.NAMES:
            elementwise.emit(emitter, name, [spread(a, out.shape) for a in args], made, params)
        elif name in reductions.REDUCE:
            reductions.reduce(emitter, name, args[0], made, params)
        elif name in reductions.EXTREME:
            reductions.extreme(emitter, name, args[0], made, params)
        elif name == "dot_general":
            reductions.dot_general(emitter, args[0], args[1], made, params)
        elif name == "cumsum":
            reductions.cumulative_sum(emitter, args[0], made, params)
        else:
            raise HomingError(f"the operation {name} cannot be translated for a page")
        return made

    def _scatter(self, name: str, args: list[Value], params: dict[str, Any]) -> Value:
        array, new, at = indexing.scatter(self.emitter, name, args, params)
        if SCATTERS[name] is not None:
            old = array.view(lambda x: x.reshape(-1)[at])
            made = self.emitter.fresh(new.shape, new.dtype)
            elementwise.emit(self.emitter, SCATTERS[name], [old, new], made, {})
            new = made
        return indexing.replaced(self.emitter, array, new, at)

    # Control flow.

    def scan(self, args: list[Value], equation: Any) -> list[Value]:
        """A loop of known length; carries have a place, slices are copied in and results out."""
        params, (held, carried) = equation.params, scan_inputs(equation)
        closed, length = params["jaxpr"], int(params["length"])
        consts, start, stacked = args[:held], args[held : held + carried], args[held + carried :]
        carry = [self._held(v) for v in start]
        slices = [self.emitter.fresh(v.shape[1:], v.dtype) for v in stacked]
        rows = [self.emitter.row(v) for v in stacked]
        results = [
            self.emitter.fresh(a.shape, a.dtype) for a in (v.aval for v in closed.jaxpr.outvars[carried:])
        ]
        made = [self.emitter.fresh((length, *v.shape), v.dtype) for v in results]
        if not length:
            return [*carry, *made]
        with self.emitter.scope(self.emitter.code), self.emitter.loop(length, 1, ITERATION):
            code = self.emitter.code
            for row, piece in zip(rows, slices, strict=True):
                self._indexed_copy(
                    code, row, piece, into_stack=False, reverse=params["reverse"], length=length
                )
            with self.emitter.scope(code):
                found = self.evaluate(closed.jaxpr, closed.consts, [*consts, *carry, *slices])
                self._write([*carry, *results], found)
            for stack, result in zip(made, results, strict=True):
                row = self.emitter.row(stack)
                self._indexed_copy(
                    code, row, result, into_stack=True, reverse=params["reverse"], length=length
                )
        return [*carry, *made]

    def _indexed_copy(
        self, code: Code, row: int, piece: Value, into_stack: bool, reverse: bool, length: int
    ) -> None:
        """Copy between an array and the slice of a stack that the current iteration is about."""
        size = WIDTH * piece.size
        if not size:
            return

        def stack() -> None:
            if reverse:
                code.i32(length - 1).with_index("local.get", ITERATION).op("i32.sub")
            else:
                code.with_index("local.get", ITERATION)
            code.i32(size).op("i32.mul").i32(row).op("i32.add")

        own = lambda: code.i32(self.emitter.row(piece))
        for push in (stack, own) if into_stack else (own, stack):
            push()
        code.i32(size).copy_bytes()

    def _held(self, value: Value) -> Value:
        """A copy in a place of its own."""
        made = self.emitter.fresh(value.shape, value.dtype)
        if value.size:
            self.emitter.assign(self.emitter.row(made), value)
        return made

    def while_loop(self, args: list[Value], equation: Any) -> list[Value]:
        """A loop until a condition is false."""
        params = equation.params
        first, second = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
        condition, body = params["cond_jaxpr"], params["body_jaxpr"]
        carry = [self._held(v) for v in args[second:]]
        go_on = self.emitter.fresh((), bool)
        with self.emitter.scope(self.emitter.code):
            code = self.emitter.code.start("block").start("loop")
            with self.emitter.scope(code):
                self._write(
                    [go_on], self.evaluate(condition.jaxpr, condition.consts, [*args[:first], *carry])
                )
            code.i32(0).memory("i32.load", self.emitter.row(go_on)).op("i32.eqz").with_index("br_if", 1)
            with self.emitter.scope(code):
                self._write(carry, self.evaluate(body.jaxpr, body.consts, [*args[first:second], *carry]))
            code.with_index("br", 0).op("end", "end")
        return carry

    def cond(self, args: list[Value], equation: Any) -> list[Value]:
        """One of two branches."""
        which, *rest = args
        branches = equation.params["branches"]
        if which.data is not None:
            chosen = branches[int(np.clip(which.data, 0, len(branches) - 1))]
            return self.evaluate(chosen.jaxpr, chosen.consts, rest)
        if len(branches) != 2:
            raise HomingError("a choice between more than two branches cannot be translated for a page")
        outs = [self.emitter.fresh(v.aval.shape, v.aval.dtype) for v in branches[0].jaxpr.outvars]
        with self.emitter.scope(self.emitter.code):
            code = self.emitter.code.i32(0)
            code.memory("i32.load", int(self.emitter.places(which).reshape(-1)[0])).start("if")
            for k, branch in enumerate(reversed(branches)):
                with self.emitter.scope(code):
                    self._write(outs, self.evaluate(branch.jaxpr, branch.consts, rest))
                code.op("else" if k == 0 else "end")
        return outs


CONTROL: dict[str, Callable[[Translator, list[Value], Any], list[Value]]] = {
    "scan": Translator.scan,
    "while": Translator.while_loop,
    "cond": Translator.cond,
}
MOVING: dict[str, Callable[[Emitter, list[Value], Any, dict[str, Any]], Value]] = {
    "concatenate": lambda e, args, out, p: indexing.joined(
        e, args, lambda t: np.concatenate(t, p["dimension"])
    ),
    "stack": lambda e, args, out, p: indexing.joined(e, args, lambda t: np.stack(t, p["axis"])),
    "pad": lambda e, args, out, p: indexing.pad(e, args, p),
    "gather": lambda e, args, out, p: indexing.gather(e, args, out.shape, p),
    "dynamic_slice": lambda e, args, out, p: indexing.dynamic_slice(e, args, p),
    "dynamic_update_slice": lambda e, args, out, p: indexing.dynamic_update_slice(e, args),
}


def constant(value: Any, dtype: Any = None) -> Value:
    """A known array."""
    data = np.asarray(value, dtype)
    if data.dtype == np.float64:
        data = data.astype(np.float32)
    elif data.dtype == np.int64:
        data = data.astype(np.int32)
    return Value(check_dtype(data.dtype), data=data)


def literal(variable: Any) -> Value:
    """A number in a jaxpr."""
    return constant(variable.val, variable.aval.dtype)


def folded(equation: Any, args: Sequence[Value]) -> list[Value]:
    """Outputs of an equation whose inputs are all known."""
    with jax.ensure_compile_time_eval():
        found = equation.primitive.bind(*(a.data for a in args), **equation.params)
    outs = found if equation.primitive.multiple_results else [found]
    return [constant(np.asarray(out)) for out in outs]


def spread(value: Value, shape: Sequence[int]) -> Value:
    """A scalar operand of an elementwise primitive as an array of its shape."""
    return value if value.shape == tuple(shape) else value.view(lambda x: np.broadcast_to(x, tuple(shape)))


def same_bits(source: np.dtype, target: np.dtype) -> bool:
    """Whether converting changes no element in memory."""
    whole = (np.dtype(np.int32), np.dtype(np.uint32))
    widened = source == elementwise.BFLOAT16 and target == np.dtype(np.float32)
    return source == target or widened or (source in whole and target in whole)
