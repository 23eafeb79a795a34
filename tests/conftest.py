"""Settings for all tests: CPU, quick compilation that is kept between runs, and strictness."""

import functools
import gc
import itertools
import os
from importlib.metadata import version
from pathlib import Path
from typing import Any

# Before JAX is imported, and for the processes that tests start: tests compile much and run little. So LLVM
# optimises nothing, and a program is compiled in one piece: the parts that XLA would compile side by side cost a
# fifth more, and the cores are busy anyway. Older emitters of fusions need less than half the time of the new ones;
# jaxlib 0.11 has lost them and refuses the flag.
os.environ["JAX_PLATFORMS"] = "cuda" if os.environ.get("HOMING_TEST_GPU") else "cpu"  # `make test-gpu`
# Tests on a GPU take what they need of its memory, not three quarters of it at once: others may train there.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "")
    + " --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    + " --xla_cpu_parallel_codegen_split_count=1 --xla_cpu_opt_preset=CPU_OPT_PRESET_FAST_COMPILE"
    + (" --xla_cpu_use_fusion_emitters=false" if version("jaxlib").startswith("0.10.") else "")
)
# What one process has compiled the others need not; shorter compilations take as long to look up.
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.2"

# Before MuJoCo is, which a test may import first: without a screen only EGL draws.
if not os.environ.get("DISPLAY"):
    os.environ.setdefault("MUJOCO_GL", "egl")

import hypothesis
import jax
import pytest
from jax._src.interpreters import mlir

ROOT = Path(__file__).parent.parent
CACHE = ROOT / ".cache" / "jax"
jax.config.update("jax_compilation_cache_dir", str(CACHE))
jax.config.update("jax_debug_key_reuse", True)

# The same examples in every run; `--hypothesis-profile=explore` draws others.
hypothesis.settings.register_profile("same", deadline=None, database=None, derandomize=True)
hypothesis.settings.register_profile("explore", deadline=None, database=None)
hypothesis.settings.load_profile("same")

# Tracing makes many small objects that live as long as their program: collecting them often is in vain.
gc.set_threshold(1_000_000, 20, 50)

# Thousands of small programs are lowered, each in an MLIR context of its own, which takes longer to make than to use.
# Here a context serves many. The function is JAX's own affair: where it is gone, tests are slower.
PROGRAMS_IN_A_CONTEXT = 64


def _share_contexts(make: Any) -> Any:
    lowered, latest = itertools.count(1), [make()]

    def context() -> Any:
        if next(lowered) % PROGRAMS_IN_A_CONTEXT == 0:
            latest[:] = [make()]
        return latest[0]

    return context


if hasattr(mlir, "make_ir_context"):
    mlir.make_ir_context = _share_contexts(mlir.make_ir_context)

# They collect garbage, which takes seconds where a process has compiled much.
FIRST = ("play/test_memory.py", "play/test_page.py")

# Files that take longest, in this order. Workers take whole files, as the tests of one share what they compiled:
# begun first, none of them keeps one worker busy after the others are done.
LONGEST = (
    "envs/test_base.py",
    "test_docs_code.py",
    "physics/test_spring.py",
    "runs/test_faults.py",
    "agents/test_learning.py",
    "training/test_seeds.py",
    "training/test_runner.py",
    "play/test_play_browser.py",
    "physics/test_parity.py",
    "training/test_offline.py",
    "test_examples.py",
    "cli/test_train.py",
    "studies/test_cluster.py",
    "attacks/test_cli.py",
    "policies/test_policies.py",
    "studies/test_studies.py",
    "agents/test_srl.py",
)

# Files whose tests share what they compiled with those of other files: one worker takes all of a group.
TOGETHER = (
    ("envs/test_base.py", "envs/test_registry.py", "envs/test_defects.py"),  # helpers.record
    ("training/test_runner.py", "attacks/test_resume.py", "report/test_report_run.py"),  # shared_programs
    ("runs/test_faults.py", "attacks/test_kills.py"),  # fault_helpers.undisturbed
    ("play/test_session.py", "play/test_page.py", "play/test_following.py"),  # the session of conftest.py
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Of `--dist loadfile`: with groups of files instead of single ones."""
    from xdist.scheduler import LoadFileScheduling

    groups = {f"tests/{name}": str(group) for group in TOGETHER for name in group}

    class LoadGroupsOfFiles(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return groups.get(file := super()._split_scope(nodeid), file)

    return LoadGroupsOfFiles(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ordered = (*FIRST, *LONGEST)
    named = {ROOT / "tests" / name for name in (*ordered, *(name for group in TOGETHER for name in group))}
    if gone := [str(path) for path in named if not path.is_file()]:
        raise pytest.UsageError(f"tests/conftest.py names files that are not there: {gone}")
    rank = {ROOT / "tests" / name: i for i, name in enumerate(ordered)}
    items.sort(key=lambda item: rank.get(item.path, len(rank)))


# Linux allows a process 65,530 memory maps and a program that JAX compiled has up to some hundred: a process that has
# compiled the programs of all environments would crash.
MOST_MAPS, CHECKED_EVERY = 45_000, 10  # tests
_ended = itertools.count(1)


def pytest_runtest_teardown() -> None:
    maps = Path("/proc/self/maps")
    if next(_ended) % CHECKED_EVERY == 0 and maps.exists() and maps.read_bytes().count(b"\n") > MOST_MAPS:
        jax.clear_caches()
        gc.collect()


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


@pytest.fixture
def export_folder(tmp_path, monkeypatch):
    """The folder of traced programs, which are kept in the test."""
    from homing.compile import export_cache

    before = jax.config.jax_compilation_cache_dir
    monkeypatch.setattr(export_cache, "_on", True)
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    yield tmp_path / export_cache.FOLDER
    jax.config.update("jax_compilation_cache_dir", before)


@pytest.fixture
def default_emitters(monkeypatch):
    """Functions jitted in the test have XLA's default emitters of fusions: for outcomes that hang on rounding."""
    options = {"xla_cpu_use_fusion_emitters": True} if "fusion_emitters" in os.environ["XLA_FLAGS"] else {}
    monkeypatch.setattr(jax, "jit", functools.partial(jax.jit, compiler_options=options))
