"""The head of a survival critic: from two encodings to hazards and occupancies."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from homing.networks.modules import MLP, Dense
from homing.networks.net_config import NetConfig
from homing.types import Array, Key

HAZARD_RANK = 64  # of the hazard logits over time
BASIS_STD = 0.02  # of the initial basis of hazard logits
FIRST_HAZARD = -5.0  # initial hazard logits: a goal is expected after some hundred steps
FILM_SCALE = 0.1


class Prediction(NamedTuple):
    """What the head says of pairs [...]."""

    arrived: Array  # [...] logit
    hazard: Array  # [..., hazard bins] logits
    occupancy: Array  # [..., occupancy bins] logits


@dataclasses.dataclass(frozen=True)
class SurvivalHead:
    """From φ and ψ [..., dim] to the logits of a Prediction; hazards are low-rank over time."""

    config: NetConfig
    dim: int
    hazard_bins: int
    occupancy_bins: int

    def init(self, key: Key) -> dict[str, Any]:
        """Initial parameters."""
        k_film, k_trunk, k_basis = jax.random.split(key, 3)
        blank = jnp.zeros((1, 4 * self.dim), jnp.float32)
        outputs = HAZARD_RANK + self.occupancy_bins + 1
        return {
            "film": Dense(2 * self.dim).init(k_film, blank[:, : self.dim])["params"],
            "trunk": MLP(self.config, outputs).init(k_trunk, blank)["params"],
            "basis": BASIS_STD * jax.random.normal(k_basis, (HAZARD_RANK, self.hazard_bins), jnp.float32),
            "bias": jnp.full((self.hazard_bins,), FIRST_HAZARD, jnp.float32),
        }

    def __call__(self, params: dict[str, Any], phi: Array, psi: Array) -> Prediction:
        film: Any = Dense(2 * self.dim).apply({"params": params["film"]}, psi)
        scale, shift = jnp.split(FILM_SCALE * film, 2, axis=-1)
        z = (1 + scale) * phi + shift
        features = _features(z, psi)
        trunk = MLP(self.config, self.hazard_bins + self.occupancy_bins + 1)
        out: Any = trunk.apply({"params": _with_hazards(params)}, features)
        return Prediction(out[..., -1], out[..., : self.hazard_bins], out[..., self.hazard_bins : -1])


def _features(z: Array, psi: Array) -> Array:
    """[z, ψ, z − ψ, z ⊙ ψ] [..., 4 · dim], as weighted sums: XLA makes them in one pass, a concatenation in five."""
    of_z, of_psi, of_both = np.asarray([[1, 0, 0], [0, 1, 0], [1, -1, 0], [0, 0, 1]], np.float32).T[..., None]
    z, psi = z[..., None, :], psi[..., None, :]
    mixed = of_z * z + of_psi * psi + of_both * (z * psi)
    return mixed.reshape(*mixed.shape[:-2], -1)


def _with_hazards(params: dict[str, Any]) -> dict[str, Any]:
    """The trunk's parameters with the basis of hazards multiplied into its last layer.

    The product of two small matrices does not wait for the batch, which then has one product for all outputs.
    """
    trunk, basis = params["trunk"], params["basis"]
    kernel, bias = trunk["head"]["kernel"], trunk["head"]["bias"]
    hazards = kernel[:, :HAZARD_RANK] @ basis, bias[:HAZARD_RANK] @ basis + params["bias"]
    rest = kernel[:, HAZARD_RANK:], bias[HAZARD_RANK:]
    both = [jnp.concatenate(pair, axis=-1) for pair in zip(hazards, rest, strict=True)]
    return {**trunk, "head": {"kernel": both[0], "bias": both[1]}}
