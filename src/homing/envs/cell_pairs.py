"""Start and goal cells of a maze at a set walking distance from each other."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from homing import bounds
from homing.envs.arenas import FREE, Arena
from homing.errors import ConfigError
from homing.types import Array, Key


@dataclass(frozen=True)
class CellPairs:
    """Uniform over the pairs of a start and a goal cell that lie `least` to `most` cells apart along free cells.

    Training pairs that are near each other and evaluation pairs that are far test whether a policy composes
    paths it has never seen as a whole.

    most:   None has no upper limit
    height: of goals that have one, in metres
    spread: adds U(±spread) on x and y to the start, in metres
    """

    least: int = 1
    most: int | None = None
    height: float | None = None
    spread: float = 0.0

    def __post_init__(self) -> None:
        bounds.check(self)
        if self.most is not None and self.most < self.least:
            raise ConfigError(f"pairs of cells need least ≤ most, not {self.least} and {self.most}")

    @property
    def dim(self) -> int:
        return 2 if self.height is None else 3

    def draw(self, key: Key, arena: Arena) -> Array:
        return self.draw_pair(key, arena)[0]

    def draw_pair(self, key: Key, arena: Arena) -> tuple[Array, Array]:
        """A goal [dim] and a start [2]."""
        k_pair, k_spread = jax.random.split(key)
        centres = arena.cells(FREE)
        apart = walking_distances(centres)
        pairs = np.argwhere(self._fits(apart))
        if not len(pairs):
            raise ConfigError(
                f"no two cells of this maze are {self.least} to {self.most or 'any number of'} cells apart; "
                f"the farthest are {int(apart[np.isfinite(apart)].max())}"
            )
        start, goal = jnp.asarray(pairs)[jax.random.randint(k_pair, (), 0, len(pairs))]
        offset = jax.random.uniform(k_spread, (2,), jnp.float32, -self.spread, self.spread)
        return self._goal(jnp.asarray(centres)[goal]), jnp.asarray(centres)[start] + offset

    def draw_from(self, key: Key, arena: Arena, place: Array) -> Array:
        """A goal for a robot under way at place [2]; where no cell is as far as `least`, the farthest."""
        centres = arena.cells(FREE)
        apart = walking_distances(centres)
        reachable = np.where(np.isfinite(apart), apart, -1.0)
        farthest = (reachable == reachable.max(axis=1, keepdims=True)) & (reachable > 0)
        fits = self._fits(apart)
        allowed = np.where(fits.any(axis=1, keepdims=True), fits, farthest)
        here = jnp.argmin(jnp.sum(jnp.square(jnp.asarray(centres) - place), axis=-1))
        scores = jnp.where(jnp.asarray(allowed)[here], 0.0, -jnp.inf)
        return self._goal(jnp.asarray(centres)[jax.random.categorical(key, scores)])

    def _fits(self, apart: np.ndarray) -> np.ndarray:
        most = np.inf if self.most is None else self.most
        return np.isfinite(apart) & (apart >= self.least) & (apart <= most)

    def _goal(self, centre: Array) -> Array:
        return centre if self.height is None else jnp.append(centre, jnp.float32(self.height))


def walking_distances(centres: np.ndarray) -> np.ndarray:
    """Steps [K, K] to one of four neighbours between cells with these centres [K, 2]; inf where there is no way."""
    gap = np.abs(centres[:, None] - centres[None]).sum(axis=-1)
    side = gap[gap > 0].min(initial=np.inf)
    apart = np.where(np.isclose(gap, side), 1.0, np.inf)
    np.fill_diagonal(apart, 0.0)
    for via in range(len(centres)):
        apart = np.minimum(apart, apart[:, via, None] + apart[None, via])
    return apart
