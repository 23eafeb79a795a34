"""The head of a survival critic: from two encodings to hazards and occupancies."""

from __future__ import annotations

from typing import NamedTuple

import flax.linen as nn
import jax.numpy as jnp

from homing.networks.modules import MLP, Dense, NetConfig
from homing.types import Array

HAZARD_RANK = 64  # of the hazard logits over time
FIRST_HAZARD = -5.0  # initial hazard logits: a goal is expected after some hundred steps
FILM_SCALE = 0.1


class Prediction(NamedTuple):
    """What the head says of pairs [...]."""

    arrived: Array  # [...] logit
    hazard: Array  # [..., hazard bins] logits
    occupancy: Array  # [..., occupancy bins] logits


class SurvivalHead(nn.Module):
    """From φ and ψ to the logits of a Prediction; hazards are low-rank over time."""

    config: NetConfig
    hazard_bins: int
    occupancy_bins: int

    @nn.compact
    def __call__(self, phi: Array, psi: Array) -> Prediction:
        dim = phi.shape[-1]
        scale, shift = Dense(dim, name="film_scale")(psi), Dense(dim, name="film_shift")(psi)
        z = (1 + FILM_SCALE * scale) * phi + FILM_SCALE * shift
        features = jnp.concatenate([z, psi, z - psi, z * psi], axis=-1)
        out = MLP(self.config, 1 + HAZARD_RANK + self.occupancy_bins, name="trunk")(features)
        basis = self.param(
            "basis", nn.initializers.normal(0.02), (HAZARD_RANK, self.hazard_bins), jnp.float32
        )
        bias = self.param("bias", nn.initializers.constant(FIRST_HAZARD), (self.hazard_bins,), jnp.float32)
        hazard = out[..., 1 : 1 + HAZARD_RANK] @ basis + bias
        return Prediction(out[..., 0], hazard, out[..., 1 + HAZARD_RANK :])
