"""Traced functions in NumPy as a page computes them: float32, one operation after the other, none fused.

XLA fuses multiply-adds and chooses the order of sums, and chooses otherwise with other optimisation levels. A robot
with contacts amplifies such differences up to a hundred thousand times within 100 steps, so that even two builds of
the same program part. Here the order is the program's own, as in WebAssembly.
"""

import jax
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Literal
from jax.interpreters import partial_eval

from homing.compile.jaxprs import scan_inputs
from homing.share.indexing import VIEWS
from homing.share.translate import INLINED

FLOAT = np.float32


def _sum(x, axes):
    """Element after element, in float32."""
    kept = [k for k in range(x.ndim) if k not in axes]
    rows = np.transpose(x, (*kept, *axes)).reshape(*(x.shape[k] for k in kept), -1)
    total = np.zeros(rows.shape[:-1], x.dtype)
    for k in range(rows.shape[-1]):
        total = total + rows[..., k]
    return total


def _dot(left, right, dimension_numbers):
    """Products of matrices: Σ_k a_k b_k in the order of k, each product and each sum rounded."""
    (over_left, over_right), (batch_left, batch_right) = dimension_numbers
    free = lambda x, *used: [k for k in range(x.ndim) if k not in sum(map(tuple, used), ())]
    rows, columns = free(left, batch_left, over_left), free(right, batch_right, over_right)
    shape = [left.shape[k] for k in (*batch_left, *rows)] + [right.shape[k] for k in columns]
    batch = int(np.prod([left.shape[k] for k in batch_left]))
    inner = int(np.prod([left.shape[k] for k in over_left]))
    a = np.transpose(left, (*batch_left, *rows, *over_left)).reshape(batch, -1, inner)
    b = np.transpose(right, (*batch_right, *over_right, *columns)).reshape(batch, inner, -1)
    total = np.zeros((batch, a.shape[1], b.shape[2]), FLOAT)
    for k in range(inner):
        total = total + a[:, :, k, None] * b[:, k, None, :]
    return total.reshape(shape)


def _power(x, y):
    """By repeated squaring."""
    left, found = abs(y), np.ones_like(x)
    while left:
        if left & 1:
            found = x * found
        x, left = x * x, left >> 1
    return FLOAT(1) / found if y < 0 else found


def _in_double(compute):
    """A function that is computed in float64 and rounded once."""
    return lambda args, p: compute(*(np.asarray(a, np.float64) for a in args)).astype(args[0].dtype)


RULES = {
    **{name: lambda a, p, view=view: view(a[0], p) for name, view in VIEWS.items()},
    **{
        name: lambda a, p, compute=compute: compute(*a)
        for name, compute in {
            "add": np.add,
            "add_any": np.add,
            "sub": np.subtract,
            "mul": np.multiply,
            "and": np.bitwise_and,
            "or": np.bitwise_or,
            "not": np.invert,
            "lt": np.less,
            "le": np.less_equal,
            "gt": np.greater,
            "ge": np.greater_equal,
            "eq": np.equal,
            "ne": np.not_equal,
            "max": np.maximum,
            "min": np.minimum,
            "neg": np.negative,
            "abs": np.abs,
            "sqrt": np.sqrt,
        }.items()
    },
    "convert_element_type": lambda a, p: a[0].astype(p["new_dtype"]),
    "concatenate": lambda a, p: np.concatenate(a, p["dimension"]),
    "square": lambda a, p: a[0] * a[0],
    "div": lambda a, p: a[0] / a[1] if a[0].dtype == FLOAT else lax.div(*a),
    "rsqrt": lambda a, p: FLOAT(1) / np.sqrt(a[0]),
    "select_n": lambda a, p: np.where(a[0], a[2], a[1]),
    "clamp": lambda a, p: np.minimum(np.maximum(a[1], a[0]), a[2]),
    "integer_pow": lambda a, p: _power(a[0], p["y"]),
    "reduce_sum": lambda a, p: _sum(a[0], p["axes"]),
    "dot_general": lambda a, p: _dot(*a, p["dimension_numbers"]),
    "logistic": _in_double(lambda x: 1 / (1 + np.exp(-x))),
    **{
        name: _in_double(compute)
        for name, compute in {
            "exp": np.exp,
            "log": np.log,
            "sin": np.sin,
            "cos": np.cos,
            "tan": np.tan,
            "asin": np.arcsin,
            "acos": np.arccos,
            "atan": np.arctan,
            "atan2": np.arctan2,
            "tanh": np.tanh,
            "expm1": np.expm1,
            "log1p": np.log1p,
            "pow": np.power,
        }.items()
    },
}


def evaluate(jaxpr, consts, args):
    """Outputs of a jaxpr; values are pairs of an array and whether it is known without the inputs."""
    env = dict(zip(jaxpr.constvars, [(np.asarray(c), True) for c in consts], strict=True))
    env |= dict(zip(jaxpr.invars, args, strict=True))
    read = lambda v: (np.asarray(v.val, v.aval.dtype), True) if isinstance(v, Literal) else env[v]
    for equation in jaxpr.eqns:
        found = _equation(equation, [read(v) for v in equation.invars])
        env.update(zip(equation.outvars, found, strict=True))
    return [read(v) for v in jaxpr.outvars]


def _equation(equation, args):
    name, params = equation.primitive.name, equation.params
    if name in INLINED:
        inner = params[INLINED[name]]
        closed = inner if isinstance(inner, ClosedJaxpr) else ClosedJaxpr(inner, ())
        return evaluate(closed.jaxpr, closed.consts, args)
    if name == "scan":
        return _scan(args, equation)
    values, known = [v for v, _ in args], all(k for _, k in args)
    # What does not depend on the inputs is computed by JAX, when a page is made.
    if name == "optimization_barrier":
        return args
    compute = RULES.get(name)
    if compute is not None and not known:
        out = equation.outvars[0].aval
        values = [np.asarray(v) for v in values]
        with np.errstate(all="ignore"):
            return [(np.broadcast_to(compute(values, params), out.shape).astype(out.dtype), known)]
    # One operation alone: nothing to fuse, no order to choose.
    found = equation.primitive.bind(*values, **params)
    return [(np.asarray(x), known) for x in (found if equation.primitive.multiple_results else [found])]


def _scan(args, equation):
    params, (held, carried) = equation.params, scan_inputs(equation)
    closed = params["jaxpr"]
    consts, carry, stacked = args[:held], args[held : held + carried], args[held + carried :]
    carry, results = [(v, False) for v, _ in carry], []
    steps = range(params["length"])
    for k in reversed(steps) if params["reverse"] else steps:
        found = evaluate(closed.jaxpr, closed.consts, [*consts, *carry, *((x[k], False) for x, _ in stacked)])
        carry = [(v, False) for v, _ in found[:carried]]
        results.append([v for v, _ in found[carried:]])
    rows = zip(*(reversed(results) if params["reverse"] else results), strict=True)
    return [*carry, *((np.stack(row), False) for row in rows)]


def as_page(compute, *args):
    """`compute` as a function on NumPy arrays like `args`, in the arithmetic of a page; returns its leaves."""
    closed = jax.make_jaxpr(lambda *given: tuple(jax.tree.leaves(compute(*given))))(*args)
    lean, _ = partial_eval.dce_jaxpr(closed.jaxpr, [True] * len(closed.out_avals), instantiate=True)

    def run(*given):
        found = evaluate(lean, closed.consts, [(np.asarray(x), False) for x in given])
        return [np.asarray(v) for v, _ in found]

    return run


def track(traced, goal, leaves, steps):
    """Positions of all links [steps, 3 L] of a policy in its environment, and the carry before each step."""
    run, carry = as_page(traced.step, goal, *leaves), [np.asarray(x) for x in leaves]
    places, carries = [], []
    for _ in range(steps):
        carries.append(carry)
        found = run(goal, *carry)
        carry = found[: len(leaves)]
        places.append(found[len(leaves)].reshape(-1))
    return np.array(places), carries
