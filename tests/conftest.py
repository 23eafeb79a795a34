"""Settings for all tests: CPU, quick compilation that is kept between runs, and strictness."""

import gc
import os
from pathlib import Path

ROOT = Path(__file__).parent.parent

# Before JAX is imported, and for the processes that tests start: tests compile much and run little.
# Without LLVM's optimisations, and with XLA's older emitters of fusions, which need less than half the time.
FLAGS = {
    "xla_backend_optimization_level": "0",
    "xla_llvm_disable_expensive_passes": "true",
    "xla_cpu_use_fusion_emitters": "false",
}
os.environ["JAX_PLATFORMS"] = "cpu"
# What one process has compiled the others need not; shorter compilations take as long to look up.
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.2"
os.environ["XLA_FLAGS"] = " ".join(
    [os.environ.get("XLA_FLAGS", ""), *(f"--{name}={value}" for name, value in FLAGS.items())]
)

# Before MuJoCo is, which a test may import first: without a screen only EGL draws.
if not os.environ.get("DISPLAY"):
    os.environ.setdefault("MUJOCO_GL", "egl")

import jax
import pytest

CACHE = ROOT / ".cache" / "jax"
jax.config.update("jax_compilation_cache_dir", str(CACHE))
jax.config.update("jax_debug_key_reuse", True)

# Tracing makes many small objects that live as long as their program: collecting them often is in vain.
gc.set_threshold(50_000, 20, 50)


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
