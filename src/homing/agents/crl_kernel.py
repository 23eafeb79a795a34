"""Many updates of contrastive RL in one CUDA kernel, for Hopper cards: see crl_updates.cu."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from flax.traverse_util import flatten_dict, unflatten_dict

from homing.compile import cuda, xla
from homing.losses import contrastive
from homing.networks import Fit
from homing.networks.fused_passes import UNITS, WIDTHS
from homing.networks.stack import zero_padded
from homing.types import Array, UpdateContext, is_static

if TYPE_CHECKING:
    from homing.agents.crl import CRL, CRLBatch, Draws

BATCHES = (128, 192, 256)
NETS = 3
OUTPUTS = 64  # of each network, padded
ROUNDING = 4  # entries of a seed's parameters after its networks: log α and padding
THREADS = 384
STAGES = (4, 3, 2)  # tiles in flight, the best first
CHUNK_BYTES = 3 * 64 * 40 * 4  # a tile of parameters and moments
# Weights of the mean log-sums of rows and columns in a loss; the positives have minus their sum.
LOG_SUMS: dict[Callable[[Array], Array], tuple[float, float]] = {
    contrastive.infonce: (1.0, 0.0),
    contrastive.infonce_backward: (0.0, 1.0),
    contrastive.infonce_symmetric: (1.0, 1.0),
}


class UpdateShape(NamedTuple):
    """Sizes that the kernel is compiled for."""

    width: int
    inputs: int  # padded
    layers: int  # after the first
    batch: int
    updates: int
    state: int
    action: int  # of a whole chunk

    @property
    def biases(self) -> int:
        """Biases of a network, its head's padded."""
        return (1 + self.layers) * self.width + OUTPUTS

    @property
    def weight_rows(self) -> int:
        """Rows of the weights of all layers."""
        return self.inputs + self.layers * self.width

    @property
    def parameters(self) -> int:
        """Parameters of a seed: three networks, log α, padding."""
        net = self.weight_rows * self.width + self.width * OUTPUTS + self.biases
        return NETS * net + ROUNDING

    @property
    def scratch(self) -> int:
        """What blocks write for each other, in units of two bytes."""
        packed = 3 * self.width * (self.weight_rows + 2 * OUTPUTS)
        layers = 10 * (1 + self.layers) * self.batch * self.width
        return packed + layers + 7 * self.batch * OUTPUTS + 8 * self.batch + 64

    @property
    def tile_bytes(self) -> int:
        """A tile of weights, or of parameters."""
        return max(2 * UNITS * self.width, CHUNK_BYTES)

    def shared_bytes(self, stages: int) -> int:
        """Shared memory of a block."""
        floats = 3 * self.biases + 6 * self.batch + 3 * UNITS * self.action + 20
        return 2 * stages * self.tile_bytes + 4 * floats + 16 * (2 * stages + 1)

    @property
    def stages(self) -> int:
        """Tiles in flight: as many as fit; 0 if none do."""
        room = cuda.shared_memory()
        return next((stages for stages in STAGES if self.shared_bytes(stages) <= room), 0)


def shape_of(agent: CRL, batches: CRLBatch) -> UpdateShape | None:
    """The kernel's shape for updates on these batches [U, B, ...]; None where there is no kernel for them."""
    if not (_is_supported(agent) and xla.cuda_kernels(asked_for=True, newest=xla.HOPPER)):
        return None
    updates, batch, action = batches.action.shape
    state, goal, net = batches.obs.state.shape[-1], batches.obs.goal.shape[-1], agent.config.critic_net
    widest = max(state + action, state + goal)
    inputs = -(-widest // UNITS) * UNITS
    shape = UpdateShape(net.width, inputs, net.depth - 1, batch, updates, state, action)
    fits = batch in BATCHES and 2 * action <= OUTPUTS and shape.stages > 0
    return shape if fits else None


def _is_supported(agent: CRL) -> bool:
    """Whether the kernel computes this agent's losses: InfoNCE of L2 distances, plain networks in bfloat16."""
    config = agent.config
    net = config.critic_net
    losses = config.energy == "l2" and agent.objective.loss in LOG_SUMS and not config.survival_head
    plain = is_static(config.random_goal_ratio, 0) and is_static(config.bc_weight, 0)
    layers = net.activation == "swish" and not net.layer_norm and net.residual == "none" and net.depth > 1
    sizes = net.width in WIDTHS and config.representation_dim <= OUTPUTS
    return losses and plain and layers and sizes and net.dtype == "bfloat16" and net == config.actor_net


def updates(
    shape: UpdateShape,
    agent: CRL,
    learner: Fit,
    batches: CRLBatch,
    draws: Draws,
    contexts: UpdateContext,
) -> Fit:
    """The learner after one update for each of the batches [U, B, ...]."""
    adam = learner.opt_state
    (group,) = agent.nets.groups
    state, action, goal = batches.obs.state, batches.action, batches.obs.goal
    joined = [jnp.concatenate([state, action], axis=-1), goal, jnp.concatenate([state, goal], axis=-1)]
    inputs = jnp.stack([_in_blocks(x, shape) for x in joined], axis=1)
    trees = learner.params, adam.mu, adam.nu
    before = jnp.stack([_flat(tree["nets"][group], tree["log_alpha"], shape) for tree in trees])
    given = inputs, draws.noise, _steps(agent, adam.count, contexts), _constants(agent), before

    run = cuda.over_leading_axis(lambda *arrays: _call(shape, *arrays))
    (after,) = run(*(array[None] for array in given))

    def rebuilt(flat: Array, like: Any) -> Any:
        nets, log_alpha = _tree(flat, like["nets"][group], shape)
        return {"nets": {group: nets}, "log_alpha": log_alpha}

    params, mu, nu = map(rebuilt, after, trees)
    return Fit(params=params, opt_state=adam._replace(count=adam.count + shape.updates, mu=mu, nu=nu))


def _steps(agent: CRL, count: Array, contexts: UpdateContext) -> Array:
    """Learning rates of φ, ψ, the policy and α, and the scales of Adam's moments, of each update [U, 8]."""
    config = agent.config
    scale = jnp.broadcast_to(jnp.asarray(contexts.lr_scale, jnp.float32), jnp.shape(contexts.updates))
    rates = [scale * rate for rate in (config.critic_lr, config.critic_lr, config.actor_lr, config.alpha_lr)]
    counts = (count + 1 + jnp.arange(len(scale))).astype(jnp.float32)
    scales = [1 / (1 - decay**counts) for decay in (0.9, 0.999)]
    numbers = [*rates, *scales, *[jnp.zeros_like(scale)] * 2]
    return jnp.stack([number.astype(jnp.float32) for number in numbers], axis=-1)


def _constants(agent: CRL) -> Array:
    """Weights of the log-sums of rows and columns and of their penalty, and the target entropy [4]."""
    numbers = (*LOG_SUMS[agent.objective.loss], agent.config.logsumexp_weight, agent.target_entropy)
    return jnp.stack([jnp.asarray(number, jnp.float32) for number in numbers])


def _call(shape: UpdateShape, *given: Array) -> Array:
    seeds = len(given[0])
    stages = shape.stages
    defines = {
        "W": shape.width,
        "INPUTS": shape.inputs,
        "LAYERS": shape.layers,
        "BATCH": shape.batch,
        "UPDATES": shape.updates,
        "STATE": shape.state,
        "ACTION": shape.action,
        "STAGES": stages,
    }
    kernel = cuda.kernel("homing.agents", "crl_updates.cu", "crl_updates", defines)
    launch = cuda.Launch((2 * (shape.batch // UNITS), seeds, 1), THREADS, shape.shared_bytes(stages))
    outputs = [
        jax.ShapeDtypeStruct((seeds, 3, shape.parameters), jnp.float32),
        jax.ShapeDtypeStruct((seeds, shape.scratch), jnp.bfloat16),
    ]
    return cuda.call(kernel, launch, outputs, *given)[0]


def _in_blocks(x: Array, shape: UpdateShape) -> Array:
    """Inputs [U, B, D] in bfloat16, padded, in blocks of 8 × 8."""
    updates, batch, size = x.shape
    x = jnp.pad(x.astype(jnp.bfloat16), [(0, 0), (0, 0), (0, shape.inputs - size)])
    x = x.reshape(updates, batch // 8, 8, shape.inputs // 8, 8)
    return jnp.swapaxes(x, 2, 3).reshape(updates, batch, shape.inputs)


def _sizes(shape: UpdateShape) -> dict[tuple[str, ...], tuple[int, ...]]:
    """Paths and padded sizes of a network's parameters, in the kernel's order."""
    width, layers = shape.width, [f"Layer_{i}" for i in range(1 + shape.layers)]
    rows = [shape.inputs, *[width] * shape.layers]
    kernels = {(name, "Dense_0", "kernel"): (count, width) for name, count in zip(layers, rows, strict=True)}
    biases = {(name, "Dense_0", "bias"): (width,) for name in layers}
    return kernels | {("head", "kernel"): (width, OUTPUTS)} | biases | {("head", "bias"): (OUTPUTS,)}


def _flat(nets: Any, log_alpha: Array, shape: UpdateShape) -> Array:
    """All parameters of a seed, or their moments, in the kernel's order."""
    leaves: dict[tuple[str, ...], Any] = flatten_dict(nets)
    padded = [zero_padded(leaves[path], (NETS, *size)) for path, size in _sizes(shape).items()]
    flat = jnp.concatenate([leaf.reshape(NETS, -1) for leaf in padded], axis=1)
    return jnp.concatenate([flat.ravel(), zero_padded(log_alpha[None], (ROUNDING,))])


def _tree(flat: Array, like: Any, shape: UpdateShape) -> tuple[Any, Array]:
    """Networks and log α of what `_flat` made."""
    sizes = _sizes(shape)
    leaves: dict[tuple[str, ...], Any] = flatten_dict(like)
    ends = itertools.accumulate(math.prod(size) for size in sizes.values())
    parts = jnp.split(flat[:-ROUNDING].reshape(NETS, -1), list(ends)[:-1], axis=1)
    padded = {
        path: part.reshape(NETS, *size) for (path, size), part in zip(sizes.items(), parts, strict=True)
    }
    cut = {path: leaf[tuple(map(slice, leaves[path].shape))] for path, leaf in padded.items()}
    return unflatten_dict(cut), flat[-ROUNDING]
