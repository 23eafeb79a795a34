"""Positions and velocities of points on links."""

from __future__ import annotations

import jax.numpy as jnp

from homing.physics import Engine, State
from homing.types import Array


def rotate(rot: Array, vector: Array) -> Array:
    """Rotate vector [..., 3] by the quaternion rot [..., 4] (scalar first)."""
    w, u = rot[..., :1], rot[..., 1:]
    twice = 2.0 * jnp.cross(u, vector)
    return vector + w * twice + jnp.cross(u, twice)


def point_on_link(
    engine: Engine, state: State, link: str, offset: tuple[float, float, float]
) -> tuple[Array, Array]:
    """World position and velocity, [N, 3] each, of a point fixed to a link."""
    links = engine.links(state)
    index = engine.layout.link(link)
    pos, rot, vel, ang = (x[:, index] for x in (links.pos, links.rot, links.vel, links.ang))
    arm = rotate(rot, jnp.broadcast_to(jnp.asarray(offset, jnp.float32), pos.shape))
    return pos + arm, vel + jnp.cross(ang, arm)
