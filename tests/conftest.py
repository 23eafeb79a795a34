"""Settings for all tests: CPU, quick compilation that is kept between runs, and strictness."""

import os
from pathlib import Path

# Before JAX is imported: tests compile much and run little.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "")
    + " --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
)

# Before MuJoCo is, which a test may import first: without a screen only EGL draws.
if not os.environ.get("DISPLAY"):
    os.environ.setdefault("MUJOCO_GL", "egl")

import jax
import pytest

CACHE = Path(__file__).parent.parent / ".cache" / "jax"
jax.config.update("jax_compilation_cache_dir", str(CACHE))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
jax.config.update("jax_debug_key_reuse", True)


@pytest.fixture
def strict_promotion():
    """Refuse silent dtype promotion; for code that runs no simulator."""
    with jax.numpy_dtype_promotion("strict"):
        yield


@pytest.fixture
def keys_reused_on_purpose():
    """For tests that compare two uses of a key, and for vmapped branches, which the check takes for reuse."""
    with jax.debug_key_reuse(False):
        yield
