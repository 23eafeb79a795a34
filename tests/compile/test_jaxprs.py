"""Reading traced programs."""

import jax
import jax.numpy as jnp
from jax import lax

from homing.compile.jaxprs import scan_inputs


def test_constants_and_carries_of_a_scan_are_told_from_slices():
    """Shapes are such that no two of the numbers are the same: 3 constants, 2 carries, 1 slice."""

    def looped(a, b, c, start, rows):
        def body(carry, row):
            x, y = carry
            made = x + row * (a + b), y + c.sum()
            return made, (x, y, 2 * row, a)

        return lax.scan(body, start, rows)

    start = jnp.zeros(4), jnp.zeros(())
    traced = jax.make_jaxpr(looped)(jnp.ones(4), jnp.ones(()), jnp.ones((4, 4)), start, jnp.ones((4, 4)))
    (equation,) = [e for e in traced.eqns if e.primitive.name == "scan"]
    assert scan_inputs(equation) == (3, 2)
    assert len(equation.invars) == len(equation.outvars) == 6
