"""Damaged and crafted policy files: one message that names the file and a way out."""

import contextlib
import shutil

import jax
import numpy as np
import pytest
from file_attacks import (
    JUNK,
    OBSTACLES,
    TEXTS,
    altered,
    crafted,
    damaged,
    harmless,
    joined,
    places,
    refused,
    without,
)

import homing
from homing.cli.main import main
from homing.errors import HomingError
from homing.play.pages import _numbers
from homing.policies.card import check_card
from homing.policies.card_page import markdown
from homing.policies.store import find_policies, read_policies
from homing.runs.policy_files import load_policy, named_arrays, save_policy
from homing.runs.tensors import write_tensors

pytestmark = pytest.mark.usefixtures("probe_everywhere")


def load_all(path):
    """A policy file, and its card as a page."""
    policies = read_policies(path)
    markdown("x", policies.card, 1)
    return policies


def test_damaged_policy_files_are_refused(made, tmp_path):
    sound, path = load_all(made[1]), tmp_path / "p.safetensors"
    for name, raw in damaged(made[1].read_bytes()):
        path.write_bytes(raw)
        found = harmless(load_all, path)
        if found is not None:  # a digit that no number depends on
            assert name.startswith("bit") and found.card == sound.card, name
            jax.tree.map(np.testing.assert_array_equal, found.learner, sound.learner)


def test_crafted_headers_are_refused(made, tmp_path):
    path = tmp_path / "p.safetensors"
    for name, raw in crafted(made[1].read_bytes()):
        path.write_bytes(raw)
        print(name, "->", refused(load_all, path))


def test_damaged_policies_of_a_run_are_refused(made, tmp_path, shapes):
    raw = (made[0] / "policies" / "last.safetensors").read_bytes()
    path = tmp_path / "last.safetensors"
    for name, bad in [*damaged(raw), *crafted(raw)]:
        path.write_bytes(bad)
        found = harmless(lambda p: load_policy(p, shapes, 2), path)
        assert found is None or (name.startswith("bit") and found[1] == 24), name


@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_something_else_in_the_place_of_a_policy_is_refused(tmp_path, obstacle, shapes):
    path = tmp_path / "p.safetensors"
    OBSTACLES[obstacle](path)
    with pytest.raises(HomingError):  # quickly: it neither blocks nor fills the memory
        find_policies(path)
    with pytest.raises(HomingError):
        load_policy(path, shapes, 2)


def test_any_text_in_the_place_of_a_policy_is_refused(tmp_path, shapes):
    path = tmp_path / "p.safetensors"
    for raw in TEXTS.values():
        for bad in (raw, joined(raw, b"")):
            path.write_bytes(bad)
            refused(load_all, path)
            refused(lambda p: load_policy(p, shapes, 2), path)


NEEDED = ("agent", "settings", "spaces", "choice", "seeds", "iteration", "card")


@pytest.mark.parametrize("name", NEEDED)
def test_each_part_of_a_file_is_needed_and_checked(tmp_path, learner, content, name):
    arrays, path = named_arrays(learner.replace(opt_state=())), tmp_path / "p.safetensors"
    write_tensors(path, arrays, without(content, (name,)))
    assert name in refused(load_all, path)
    for junk in JUNK:
        write_tensors(path, arrays, altered(content, (name,), junk))
        found = harmless(load_all, path)
        assert found is None or (name, junk) == ("iteration", 10**15) or isinstance(junk, dict), junk


@pytest.mark.parametrize("part", ["settings", "spaces", "choice"])
def test_no_value_in_a_file_is_trusted(tmp_path, learner, content, part):
    """Every value of every part is replaced by something else; most are refused, none is a surprise."""
    arrays, path, count = named_arrays(learner.replace(opt_state=())), tmp_path / "p.safetensors", 0
    for place in places(content[part]):
        for junk in JUNK:
            write_tensors(path, arrays, altered(content, (part, *place), junk))
            harmless(load_all, path)
            count += 1
    assert count > 25


@pytest.mark.parametrize("junk", JUNK)
def test_no_value_of_a_card_is_trusted(content, junk):
    """Each is refused, or the card can still be shown."""
    rows = [{"seed": 3, "reached": 0.5, "falls": 1}]
    counts = {"by": "clicks", "env": "walk", "length": 5, "scores": rows}
    sound = content["card"] | {"chain": counts, "page": counts | {"chains": 2, "seconds": 60.0}}
    for place in places(sound):
        for card in (altered(sound, place, junk), without(sound, place)):
            with contextlib.suppress(HomingError):
                assert "## x" in markdown("x", check_card(card), 1)
                assert card.get("page") is None or _numbers(check_card(card))


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (("settings", "critic_net", "depth"), 10**9, "depth"),
        (("settings", "critic_net", "depth"), 200, "layers"),
        (("settings", "actor_net", "width"), 10**12, "width"),
        (("settings", "actor_net", "width"), 60_000, "parameters"),
        (("settings", "representation_dim"), 9, "is [2, "),
        (("settings", "chunk"), 3, "is [2, "),
        (("spaces", "state_dim"), 30, "is [2, "),
        (("spaces", "goal_dim"), 10**12, "parameters"),
        (("spaces", "action_dim"), 0, "parameters"),
        (("choice", "eval_envs"), 10**12, "eval_envs"),
        (("choice", "episode_length"), 0, "episode_length"),
        (("seeds",), [3, 3], "twice"),
        (("seeds",), [3], "not [1"),
        (("seeds",), [-3, 4], "seeds"),
        (("agent",), "crk", "crl"),
        (("agent",), "td3", "does not fit"),
        (("card", "scores"), [{"seed": 3, "success_any": "high"}], "scores"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, learner, content, place, value, words):
    path = tmp_path / "p.safetensors"
    write_tensors(path, named_arrays(learner.replace(opt_state=())), altered(content, place, value))
    assert words in refused(load_all, path)


def test_a_file_has_no_module_imported(tmp_path, learner, content, monkeypatch):
    """Nor those that registered its agent: the message says how a person can."""
    (tmp_path / "planted.py").write_text("raise SystemExit('executed')")
    monkeypatch.chdir(tmp_path)
    content = altered(content, ("card", "config", "imports"), ["planted"])
    path, arrays = tmp_path / "p.safetensors", named_arrays(learner.replace(opt_state=()))
    write_tensors(path, arrays, content)
    assert load_all(path).agent_name == "crl"
    write_tensors(path, arrays, {**content, "agent": "foreign"})
    assert "--import planted" in refused(load_all, path)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite_are_refused(made, tmp_path, learner, content, value):
    broken = jax.tree.map(lambda x: x.at[:].set(value), learner.replace(opt_state=()))
    path = tmp_path / "p.safetensors"
    write_tensors(path, named_arrays(broken), content)
    assert "NaN or an infinity" in refused(load_all, path)


@pytest.mark.parametrize("seeds", [[0], [0, 1]])
def test_a_run_whose_seeds_have_diverged_scores_the_others_or_says_so(made, tmp_path, learner, seeds, capsys):
    run = shutil.copytree(made[0], tmp_path / "run")
    broken = jax.tree.map(lambda x: x.at[np.array(seeds)].set(np.nan), learner.replace(opt_state=()))
    save_policy(run / "policies" / "last.safetensors", broken, 24)
    with pytest.raises(HomingError, match=r"seed 3 of .* has diverged"):
        homing.load(run, seed=3)
    if seeds == [0]:
        with jax.debug_key_reuse(False):
            main(["eval", str(run), "--cpu", "--episodes", "2"])
        said = capsys.readouterr().out
        assert "diverged: seeds 3" in said and "success_any: fraction of episodes" in said
        return
    with pytest.raises(SystemExit) as end:
        main(["eval", str(run), "--cpu", "--episodes", "2"])
    assert end.value.code == 2 and "every seed" in capsys.readouterr().err
