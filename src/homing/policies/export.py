"""Export of a run's policies to a file, and their evaluation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from homing.bounds import check_value
from homing.errors import ConfigError, HomingError, shown
from homing.policies import hugging_face, onnx_export
from homing.policies.card import SCORE, Card, best_seed, check_card, exported, measured_again, with_chain
from homing.policies.store import Policies, Which, check_file, find_policies, read_card, write_policies
from homing.runs.policy_files import finite_seeds, halves
from homing.runs.stats import aggregate
from homing.runs.strict_json import open_plain
from homing.runs.tensors import TensorFile, write_tensors
from homing.training.build import check_alike
from homing.training.seeds import evaluate_learners

# Starts and goals of an export's evaluation are those of no run: runs fold theirs from small seeds.
FRESH = 20_261_115
ONNX = ".onnx"


def export(
    run: str | Path,
    out: str | Path,
    *,
    seed: int | str = "best",
    which: Which = "last",
    episodes: int | None = None,
    half: bool = False,
    chain: int | None = None,
    chain_steps: int | None = None,
) -> Path:
    """Write a policy file."""
    check_file(out)
    policies = find_policies(run, which)
    seeds, how = chosen_seeds(policies, seed)
    chosen = rounded(policies.only(seeds)) if half else policies.only(seeds)
    card = exported(chosen.card, seeds, how)
    if episodes is not None:
        card = measured_again(card, evaluated(chosen, None, episodes, FRESH), FRESH)
    if chain is not None:
        found = evaluated(chosen, None, episodes, FRESH, chain=chain, chain_steps=chain_steps)
        card = with_chain(card, found, FRESH)
    return write_policies(out, dataclasses.replace(chosen, card=card), half)


def export_as(run: str | Path, out: str | Path, hf: bool, license: str, **options: Any) -> Path:
    """`homing.export`: a policy file, an ONNX model, or a folder for a model hub."""
    if hf:
        return export_folder(run, out, license, **options)
    if Path(out).suffix != ONNX:
        return export(run, out, **options)
    unused = [name for name in ("episodes", "half", "chain", "chain_steps") if options.pop(name, None)]
    if unused:
        raise ConfigError(f"an ONNX file has no model card and 32-bit weights; leave out {', '.join(unused)}")
    return export_graph(run, out, **options)


def export_folder(run: str | Path, out: str | Path, license: str, **options: Any) -> Path:
    """A folder for a model hub: the policy file and its model card; `options` are those of `export`."""
    folder = hugging_face.check_folder(out, license)
    path = export(run, hugging_face.policy_file(folder), **options)
    hugging_face.write_card(path, license)
    return folder


def export_graph(
    run: str | Path, out: str | Path, *, seed: int | str = "best", which: Which = "last"
) -> Path:
    """One policy as an ONNX model."""
    onnx_export.library()
    if Path(out).is_dir():
        raise ConfigError(f"{out} is a folder; name a file in it")
    policies = find_policies(run, which)
    seeds, _ = chosen_seeds(policies, seed)
    if len(seeds) != 1:
        raise ConfigError(
            f"an ONNX file holds one policy; choose one of the seeds {', '.join(map(str, seeds))}"
        )
    return onnx_export.export_onnx(policies, out, *seeds)


def change_card(path: str | Path, change: Callable[[Card], Card]) -> Path:
    """Change the model card in a policy file; its weights and all else stay as they are."""
    path = check_file(path)
    card = check_card(change(read_card(path)))
    with open_plain(path) as opened:
        file = TensorFile(path, opened).verified()
        arrays, content = file.arrays(), dict(file.content or {}, card=card)
    write_tensors(path, arrays, content)
    return path


def rounded(policies: Policies) -> Policies:
    """Policies with weights rounded to 16 bits, so that what is evaluated is what is written."""
    round_off = lambda x: x.astype(jnp.float16).astype(x.dtype) if halves(x) else x
    learner = jax.tree.map(round_off, policies.learner)
    if np.any(finite_seeds(policies.learner) & ~finite_seeds(learner)):
        raise HomingError(f"{policies.source} holds numbers too large for 16 bits; export it in 32 instead")
    return dataclasses.replace(policies, learner=learner)


def chosen_seeds(policies: Policies, seed: int | str) -> tuple[tuple[int, ...], str]:
    """The seeds that `seed` selects, and the reason for the card."""
    if isinstance(seed, str) and seed == "all":
        return policies.seeds, "all"
    if isinstance(seed, str) and seed == "best":
        best = best_seed(policies.card)
        if best is None:
            raise ConfigError(f"{policies.source} was never evaluated, so no seed is best; name one")
        return (best,), f"the best by {SCORE}"
    one = _seed_number(seed)
    policies.place(one)
    return (one,), "as asked for"


def _seed_number(seed: Any) -> int:
    """A seed by its number, or by the text of one as the command line has it."""
    try:
        return int(seed) if isinstance(seed, str) else check_value("seed", seed)
    except ValueError:
        raise ConfigError(f"seed is best, all or a number, not {shown(seed)}") from None


def evaluated(
    policies: Policies,
    env: str | None,
    episodes: int | None,
    seed: int,
    explore: bool = False,
    chain: int | None = None,
    chain_steps: int | None = None,
) -> dict[str, Any]:
    """What `homing.evaluate` returns."""
    choice = policies.choice
    id = env or choice.eval_env or choice.env
    count = choice.eval_envs if episodes is None else episodes
    made = choice.make(count, id).of_size(count, restarts=False)
    check_alike(policies, made)
    learner, finite = policies.learner, finite_seeds(policies.learner)
    if not finite.any():
        raise _diverged(policies, "its weights hold a NaN or an infinity")
    key = jax.random.key(seed)
    found = evaluate_learners(made, policies.agent, learner, key, explore, chain, chain_steps)
    metrics = jax.device_get(found)
    finite &= np.all([np.isfinite(values) for values in metrics.values()], axis=0)
    if not finite.any():
        raise _diverged(policies, "its actions lead to a NaN or an infinity")
    rows = [
        {"seed": s} | ({name: float(v[i]) for name, v in sorted(metrics.items())} if finite[i] else {})
        for i, s in enumerate(policies.seeds)
    ]
    goals = {} if chain is None else {"chain": chain, "chain_steps": chain_steps or made.episode_length}
    return {
        "run": policies.source,
        "env": id,
        "episodes": made.num_envs,
        "iteration": policies.iteration,
        "explore": explore,
        **goals,
        "diverged": [s for s, ok in zip(policies.seeds, finite, strict=True) if not ok],
        "seeds": rows,
        "summary": aggregate({name: v[finite] for name, v in metrics.items()}),
    }


def _diverged(policies: Policies, what: str) -> HomingError:
    return HomingError(
        f"every seed of {policies.source} has diverged ({what}), so nothing can be scored; "
        "try --which best, or train again with lower learning rates"
    )
