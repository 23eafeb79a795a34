"""Policies as ONNX graphs: the greedy action's program, as JAX traces it, translated operation by operation.

The program is traced for one observation. In the graph every value that depends on it has the batch as its first
axis; all others are constants, computed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from homing.compile.jaxprs import scan_inputs
from homing.errors import HomingError, missing_package
from homing.policies.onnx_ops import INNER, TRANSLATIONS, Node, Value, cut
from homing.policies.store import Policies
from homing.runs.folder import write_whole
from homing.types import Array, Obs

OPSET, IR_VERSION = 17, 9
STATE, GOAL, ACTION = "state", "goal", "action"


def export_onnx(policies: Policies, path: str | Path, seed: int | None = None) -> Path:
    """Write one policy as an ONNX model: state [batch, state_dim] and goal [batch, goal_dim] to action.

    The action is [batch, action_dim], or [batch, chunk, action_dim] of a policy that plans chunks. Networks that
    compute in bfloat16 are exported in float32.
    """
    onnx, path = library(), Path(path)
    agent, spec = policies.in_float32().agent, policies.spec  # few programs run bfloat16 graphs
    learner = policies.one(seed)
    shape = (spec.action_dim,) if agent.chunk == 1 else (agent.chunk, spec.action_dim)

    def act(state: Array, goal: Array) -> Array:
        obs = Obs(state, goal)
        return agent.act(learner, obs, jax.random.key(0), explore=False).reshape(shape)

    sizes = {STATE: spec.state_dim, GOAL: spec.goal_dim}
    traced = jax.make_jaxpr(act)(*(jnp.zeros((size,), jnp.float32) for size in sizes.values()))
    graph = Graph(onnx, policies.agent_name)
    inputs = [graph.input(name, (size,)) for name, size in sizes.items()]
    (action,) = graph.run(traced.jaxpr, traced.consts, inputs)
    model = graph.model(action, shape)
    onnx.checker.check_model(model)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, model.SerializeToString())
    return path


def library() -> Any:
    """The package `onnx`, or an error that names the extra."""
    try:
        import onnx
    except ModuleNotFoundError as error:
        raise missing_package("an ONNX export", "onnx", error) from None
    return onnx


class Graph:
    """An ONNX graph in the making."""

    def __init__(self, onnx: Any, agent: str):
        self._onnx, self._agent = onnx, agent
        self._nodes: list[Any] = []
        self._inputs: list[Any] = []
        self._constants: dict[str, np.ndarray] = {}

    def input(self, name: str, shape: tuple[int, ...]) -> Node:
        self._inputs.append(self._described(name, shape))
        return Node(name, shape)

    def add(self, op: str, shape: Sequence[int], *inputs: Value, **attributes: Any) -> Node:
        """A node; `shape` is that of its output without the batch."""
        name = f"v{len(self._nodes)}"
        names = [self._name(value) for value in inputs]
        self._nodes.append(self._onnx.helper.make_node(op, names, [name], **attributes))
        return Node(name, tuple(shape))

    def run(self, jaxpr: Any, consts: Sequence[Any], inputs: Sequence[Value]) -> list[Value]:
        """The outputs of a traced program."""
        known: dict[Any, Value] = dict(zip(jaxpr.constvars, consts, strict=True))
        known |= dict(zip(jaxpr.invars, inputs, strict=True))
        read = lambda atom: known[atom] if type(atom).__name__ != "Literal" else np.asarray(atom.val)
        for eqn in jaxpr.eqns:
            values = self._equation(eqn, [read(atom) for atom in eqn.invars])
            known |= dict(zip(eqn.outvars, values, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def model(self, output: Value, shape: tuple[int, ...]) -> Any:
        """The whole model; nodes that the output does not need are left out."""
        helper = self._onnx.helper
        self._nodes.append(helper.make_node("Identity", [self._name(output)], [ACTION]))
        needed, nodes = {ACTION}, []
        for node in reversed(self._nodes):
            if node.output[0] in needed:
                needed |= set(node.input)
                nodes.insert(0, node)
        kept = {name: array for name, array in self._constants.items() if name in needed}
        constants = [self._onnx.numpy_helper.from_array(array, name) for name, array in kept.items()]
        outputs = [self._described(ACTION, shape)]
        graph = helper.make_graph(nodes, "policy", self._inputs, outputs, constants)
        opset = helper.make_opsetid("", OPSET)
        return helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION, producer_name="homing")

    def unsupported(self, what: str) -> HomingError:
        return HomingError(
            f"the policy of {self._agent} cannot be written as ONNX: its program has {what}, which is not "
            "translated; `homing export` writes it as safetensors"
        )

    def _described(self, name: str, shape: tuple[int, ...]) -> Any:
        kind = self._onnx.TensorProto.FLOAT
        return self._onnx.helper.make_tensor_value_info(name, kind, ["batch", *shape])

    def _name(self, value: Value) -> str:
        if isinstance(value, Node):
            return value.name
        name = f"c{len(self._constants)}"
        self._constants[name] = np.asarray(value)
        return name

    def _equation(self, eqn: Any, inputs: list[Value]) -> Sequence[Value]:
        kind = eqn.primitive.name
        if kind in INNER:
            inner = eqn.params.get("jaxpr") or eqn.params.get("call_jaxpr")
            consts = getattr(inner, "consts", ())
            return self.run(getattr(inner, "jaxpr", inner), consts, inputs)
        if not any(isinstance(value, Node) for value in inputs):
            found = eqn.primitive.bind(*map(jnp.asarray, inputs), **eqn.params)
            return list(found) if eqn.primitive.multiple_results else [found]
        if kind == "scan":
            return self._scan(eqn, inputs)
        if kind == "split":
            return self._split(eqn, inputs[0])
        if kind not in TRANSLATIONS:
            raise self.unsupported(f"the operation {kind}")
        return [TRANSLATIONS[kind](self, eqn, *inputs)]

    def _scan(self, eqn: Any, inputs: list[Value]) -> list[Value]:
        """A loop with constant inputs, such as a stack of residual blocks, written out."""
        params, (consts, carries) = eqn.params, scan_inputs(eqn)
        fixed, carry, xs = inputs[:consts], inputs[consts : consts + carries], inputs[consts + carries :]
        if params["reverse"] or len(eqn.outvars) != carries or any(isinstance(x, Node) for x in xs):
            raise self.unsupported("a loop over inputs")
        inner = params["jaxpr"]
        for i in range(params["length"]):
            carry = self.run(inner.jaxpr, inner.consts, [*fixed, *carry, *(x[i] for x in xs)])  # type: ignore[index]
        return carry

    def _split(self, eqn: Any, x: Value) -> list[Value]:
        axis, begin, parts = eqn.params["axis"], 0, []
        for size, out in zip(eqn.params["sizes"], eqn.outvars, strict=True):
            parts.append(cut(self, x, [begin], [begin + size], [axis], out.aval.shape))
            begin += size
        return parts
