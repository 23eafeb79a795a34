"""The systems of `homing.physics.solvers` in double precision, by plain means."""

import jax.numpy as jnp
import numpy as np

from homing.physics.solvers import Constraints


def single(*arrays):
    """In single precision."""
    return [jnp.asarray(x, jnp.float32) for x in arrays]


def random_rules(seed, rows=20, size=6, always=2):
    rng = np.random.default_rng(seed)
    return Constraints(
        jacobian=jnp.asarray(rng.normal(size=(rows, size)), jnp.float32),
        target=jnp.asarray(rng.normal(size=rows), jnp.float32),
        stiffness=jnp.asarray(rng.uniform(0.1, 30.0, rows), jnp.float32),
        equality=jnp.arange(rows) < always,
    )


def positive_definite(rng, size):
    root = rng.normal(size=(size, size))
    return root @ root.T + 0.1 * np.eye(size)


def exact(mass, force, rules, a):
    """Accelerations by Newton's method from `a`, with steps that are halved until they pay."""
    rows, wanted, stiffness = (np.asarray(x, float) for x in (rules.jacobian, rules.target, rules.stiffness))
    always = np.asarray(rules.equality)
    push = lambda above: stiffness * (always | (above < 0))

    def cost(a):
        above = rows @ a - wanted
        return 0.5 * a @ mass @ a - force @ a + 0.5 * push(above) @ above**2

    for _ in range(200):
        above = rows @ a - wanted
        curvature = mass + rows.T @ (push(above)[:, None] * rows)
        way = -np.linalg.solve(curvature, mass @ a - force + rows.T @ (push(above) * above))
        step = 1.0
        while cost(a + step * way) > cost(a) and step > 1e-8:
            step /= 2
        a = a + step * way
    return a
