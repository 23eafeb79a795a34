"""The parameters that a run saves to act with, and the check that a file's arrays are those of an agent."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import jax
import jax.numpy as jnp
import numpy as np

from homing.errors import HomingError
from homing.networks import parameters
from homing.runs.strict_json import describe, open_plain
from homing.runs.tensors import SUFFIX, Tensor, TensorFile, write_tensors
from homing.runs.validation import is_count

INITIAL = "initial"  # the file with what the learners of a run started with, where that is not random


def policy_path(run: Path, which: str) -> Path:
    """The file with the last, the best or the initial policies of a run."""
    return run / "policies" / f"{which}{SUFFIX}"


def save_policy(path: Path, learner: Any, iteration: int, seeds: slice = slice(None)) -> None:
    """Write the parameters of seeds [S, ...] to one file: arrays only, whole or not at all.

    seeds: which of them; copied whole and cut here, since to cut on a device is a program for each shape
    """
    arrays = {name: array[seeds] for name, array in named_arrays(parameters(learner)).items()}
    os.makedirs(path.parent, exist_ok=True)
    write_tensors(path, arrays, {"iteration": iteration})


def policy_tensors(path: Path) -> dict[str, Tensor]:
    """Types and shapes of the arrays in a run's policy file, from its header alone."""
    with _opened(path) as opened:
        return TensorFile(path, opened).tensors


def load_policy(path: Path, learner_shapes: Any, seeds: int) -> tuple[Any, int]:
    """A learner without optimisers [S, ...], and the iteration it is from.

    learner_shapes: of one seed, as `jax.eval_shape(agent.init, key)` gives them
    """
    with _opened(path) as opened:
        file = TensorFile(path, opened).verified()
        wrong = mismatch(learner_shapes, file.tensors, seeds)
        if wrong is not None:
            raise HomingError(
                f"the policies in {path} are not those of its config.json: {wrong}; "
                "restore both from the same run, or resume the run to write them again"
            )
        content = file.content
        if not isinstance(content, dict) or not is_count(content.get("iteration")):
            raise HomingError(
                f"{path} has no iteration but {describe(content)}; resume the run to write it again"
            )
        return to_learner(learner_shapes, file.arrays()), content["iteration"]


def _opened(path: Path) -> BinaryIO:
    if not path.exists():
        raise HomingError(
            f"{path} does not exist yet: a run writes it at its first checkpoint and at its end"
        )
    return open_plain(path)


def named_arrays(tree: Any) -> dict[str, np.ndarray]:
    """The arrays of a learner by dotted name."""
    return {name: np.asarray(leaf) for name, leaf in _named(tree)}


def mismatch(learner_shapes: Any, found: Mapping[str, Tensor], seeds: int, half: bool = False) -> str | None:
    """How arrays differ from the parameters that an agent has for some seeds; None where they do not.

    half: weights may be stored in 16 bits
    """
    wanted = {
        name: Tensor(np.dtype(leaf.dtype), (seeds, *leaf.shape))
        for name, leaf in _named(parameters(learner_shapes))
    }
    if missing := sorted(set(wanted) - set(found)):
        return f"{missing[0]} is missing"
    if unknown := sorted(set(found) - set(wanted)):
        return f"the agent has no {unknown[0]!r:.80}"
    for name, tensor in wanted.items():
        dtype, shape = found[name]
        if shape != tensor.shape:
            return f"{name} is {list(shape)}, not {list(tensor.shape)}"
        if dtype != tensor.dtype and not (half and dtype == np.float16 and halves(tensor)):
            return f"{name} is {dtype}, not {tensor.dtype}"
    return None


def halves(array: Any) -> bool:
    """Whether an array [S, ...] may be stored in 16 bits: matrices of weights are nearly all there is.

    Vectors stay as they are; among them are means and variances of observations, which need their digits.
    """
    return array.dtype == np.float32 and len(array.shape) >= 3


def to_learner(learner_shapes: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Arrays, which `mismatch` has checked, as the agent's learner [S, ...]."""
    tree = parameters(learner_shapes)
    leaves = [jnp.asarray(arrays[name], leaf.dtype) for name, leaf in _named(tree)]
    return jax.tree.unflatten(jax.tree.structure(tree), leaves)


def finite_seeds(learner: Any) -> np.ndarray:
    """[S] bool: seeds without a NaN or an infinity in what they learned."""
    leaves = [np.asarray(x) for x in jax.tree.leaves(learner)]
    return np.all([np.isfinite(x.reshape(len(x), -1)).all(axis=-1) for x in leaves], axis=0)


def _named(tree: Any) -> list[tuple[str, Any]]:
    dotted = lambda path: jax.tree_util.keystr(path, simple=True, separator=".")
    return [(dotted(path), leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)]
