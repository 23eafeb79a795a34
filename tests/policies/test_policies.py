"""Policy files: what goes in comes out, and what is wrong with one is said in one message."""

import dataclasses
import functools
import hashlib
import itertools
import json
import struct
import zipfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agent_helpers import any_learner
from run_helpers import probe_config, probe_envs  # noqa: F401
from safetensors.numpy import load_file

import homing
from homing.agents import AGENTS, agent_types, make_agent
from homing.cli.main import main
from homing.config.run import from_json
from homing.errors import ConfigError, HomingError
from homing.networks import NetConfig, parameters
from homing.policies import (
    bundled,
    find_policies,
    read_policies,
    shipped,
    shipped_names,
    store,
    write_policies,
)
from homing.policies.card import best_seed
from homing.policies.card_page import markdown
from homing.policies.store import EnvChoice, Policies, Spaces
from homing.runs.folder import RunFolder
from homing.runs.policy_files import save_policy
from homing.runs.strict_json import open_plain
from homing.runs.tensors import TensorFile, write_tensors

SPEC = Spaces("walk", 2, 2, 2)
NET = NetConfig(width=8, depth=1)
STATES, GOALS = np.ones((3, 2), np.float32), np.linspace(-1, 1, 6, dtype=np.float32).reshape(3, 2)


@pytest.fixture(scope="module")
def agent():
    return make_agent(probe_config_settings(), SPEC)


def probe_config_settings():
    from homing.config import run as run_settings

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_settings, "resolve", lambda id: id)
        return probe_config().settings


@pytest.fixture(scope="module")
def learner(agent):
    return jax.tree.map(lambda *seeds: jnp.stack(seeds), *(any_learner(agent, seed) for seed in (0, 1)))


@pytest.fixture
def run(tmp_path, learner, probe_envs):  # noqa: F811
    """The folder of a run of seeds 3 and 4, as training leaves it; seed 4 is the better one."""
    folder = RunFolder(tmp_path / "run")
    with folder.held():
        folder.write_config(probe_config())
        folder.add_session({"device": "a chip", "versions": {"jax": "0"}, "date": "2026-01-01", "git": {}})
        for iteration, scores in ((7, (0.9, 0.1)), (24, (0.2, 0.6))):
            save_policy(folder.path / "policies" / "last.safetensors", learner, iteration)
            folder.append(
                [
                    {"seed": s, "iteration": iteration, "step": 80 * iteration, "updates": iteration,
                     "finite": True, "eval/success_any": score, "train/critic_loss": 1.0}
                    for s, score in zip((3, 4), scores, strict=True)
                ]
            )  # fmt: skip
    return folder.path


@pytest.fixture
def file(run, tmp_path):
    return homing.export(run, tmp_path / "walk.safetensors", seed="all")


def test_a_file_acts_and_values_as_its_run_does(run, file):
    for seed in (3, 4):
        ours, theirs = homing.load(run, seed=seed), homing.load(file, seed=seed)
        np.testing.assert_array_equal(ours(STATES, GOALS), theirs(STATES, GOALS))
        np.testing.assert_array_equal(ours.value(STATES, GOALS), theirs.value(STATES, GOALS))
    assert not np.allclose(homing.load(file, seed=3)(STATES, GOALS), homing.load(file, seed=4)(STATES, GOALS))


def test_the_critic_is_asked_about_the_policys_own_action_or_another(file):
    policy = homing.load(file)
    own = policy(STATES, GOALS)
    np.testing.assert_allclose(policy.value(STATES, GOALS), policy.value(STATES, GOALS, own), rtol=1e-6)
    assert not np.allclose(policy.value(STATES, GOALS), policy.value(STATES, GOALS, -own))


def test_the_best_seed_is_that_of_the_evaluation_of_the_policy_that_is_written(run, tmp_path):
    policy = homing.load(homing.export(run, tmp_path / "best.safetensors"))
    assert policy.seed == 4
    assert policy.iteration == 24
    assert policy.card["scores"] == [{"seed": 4, "success_any": 0.6}]
    assert policy.card["chosen"] == "the best by success_any"
    assert policy.card["config"]["seeds"] == [3, 4]


def test_equal_seeds_are_told_apart_by_time_near_the_goal():
    rows = [{"seed": s, "success_any": 1.0, "time_near_goal": t} for s, t in ((0, 0.2), (1, 0.7), (2, 0.4))]
    assert best_seed({"scores": rows}) == 1
    assert best_seed({"scores": [{"seed": 0}]}) is None


def test_a_card_is_a_page_with_every_fact(file):
    page = markdown("walk", homing.load(file).card, file.stat().st_size)
    for fact in (
        "`walk`",
        "`crl`",
        "`batch_size` 32",
        "1,920 environment steps",
        "3, 4 (all) of 2",
        "a chip",
        "8 episodes",
    ):
        assert fact in page
    assert "| seed | 3 | 4 |" in page
    assert "| success_any | 0.2 | 0.6 |" in page


def test_an_export_can_be_evaluated_on_the_way(run, tmp_path):
    with jax.debug_key_reuse(False):
        policy = homing.load(homing.export(run, tmp_path / "a.safetensors", seed=3, episodes=16))
    assert policy.card["measured"]["episodes"] == 16
    assert "separate" in policy.card["measured"]["by"]
    assert 0 <= policy.card["scores"][0]["success_any"] <= 1
    assert policy.card["scores"][0]["success_any"] != 0.2


def test_half_the_bits_are_half_the_size_and_nearly_the_same_policy(run, file, tmp_path):
    half = homing.export(run, tmp_path / "half.safetensors", seed="all", half=True)
    weights = sum(x.size for x in jax.tree.leaves(read_policies(file).learner) if x.ndim >= 3)
    assert file.stat().st_size - half.stat().st_size == pytest.approx(2 * weights, abs=200)
    ours, theirs = homing.load(file)(STATES, GOALS), homing.load(half)(STATES, GOALS)
    np.testing.assert_allclose(ours, theirs, atol=5e-3)
    assert not np.array_equal(ours, theirs)


def test_a_file_is_plain_safetensors(file):
    """Read with nothing but the published layout: a size, a JSON header, numbers."""
    raw = file.read_bytes()
    (size,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + size])
    (notes,) = header.pop("__metadata__").values()
    assert set(json.loads(notes)) >= {"format", "version", "content"}
    ends = sorted(tuple(entry["data_offsets"]) for entry in header.values())
    assert ends[0][0] == 0
    assert all(a[1] == b[0] for a, b in itertools.pairwise(ends))
    assert 8 + size + ends[-1][1] == len(raw)
    assert not zipfile.is_zipfile(file)


def damaged(file, how):
    raw = bytearray(file.read_bytes())
    size = int.from_bytes(raw[:8], "little")
    if how == "cut in its numbers":
        raw = raw[:-100]
    elif how == "cut in its header":
        raw = raw[: size // 2]
    elif how == "longer":
        raw += b"more"
    elif how == "a number changed":
        raw[-5] ^= 1
    elif how == "its card changed":
        raw = raw.replace(b"0.6", b"0.9", 1)
    elif how == "its table changed":
        raw = raw.replace(b'"dtype":"F32"', b'"dtype":"I32"', 1)
    elif how == "empty":
        raw = bytearray()
    elif how == "text":
        raw = bytearray(b"a policy, honestly" * 9)
    elif how == "another json":
        raw = bytearray((2).to_bytes(8, "little") + b"{}")
    elif how == "newer":
        raw = raw.replace(b'version\\": 2', b'version\\": 9', 1)
    file.write_bytes(raw)
    return file


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("cut in its numbers", "damaged (its end is missing); copy or export it again"),
        ("cut in its header", "damaged"),
        ("longer", "not what was written"),
        ("a number changed", "not what was written"),
        ("its card changed", "not what was written"),
        ("its table changed", "not what was written"),
        ("empty", "not a policy file"),
        ("text", "not a policy file"),
        ("another json", "not a policy file"),
        ("newer", "version 9, written by Homing"),
    ],
)
def test_a_file_that_is_not_what_was_written_is_refused(file, how, words, capsys):
    before = file.read_bytes()
    assert damaged(file, how).read_bytes() != before
    with pytest.raises(HomingError) as told:
        homing.load(file)
    assert words in str(told.value)
    with pytest.raises(SystemExit) as end:
        main(["policies", str(file)])
    assert end.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_networks_of_another_shape_are_refused(run, file, agent, learner):
    policies = find_policies(file)
    grown = dataclasses.replace(policies.settings, representation_dim=9)
    write_policies(file, dataclasses.replace(policies, settings=grown))
    with pytest.raises(HomingError, match=r"does not fit this version of Homing .* not "):
        homing.load(file)


def test_a_setting_that_is_not_known_is_named(file):
    with open_plain(file) as opened:
        found = TensorFile(file, opened)
        arrays, content = found.arrays(), found.content
    content["settings"]["gama"] = 0.5
    write_tensors(file, arrays, content)
    with pytest.raises(HomingError, match=r"gama.*gamma"):
        homing.load(file)


def test_what_has_diverged_is_not_written(agent, learner, tmp_path):
    first = np.array([True, False])  # of two seeds
    spoil = lambda x: np.where(first.reshape(-1, *[1] * (x.ndim - 1)), np.nan, x).astype(x.dtype)
    broken = jax.tree.map(spoil, jax.device_get(parameters(learner)))
    policies = Policies("here", "crl", agent, agent.config, broken, (0, 1), SPEC, EnvChoice("walk"), 0, {})
    with pytest.raises(HomingError, match="diverged"):
        write_policies(tmp_path / "a.safetensors", policies)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("{run}", "--out", "{tmp}/a.npz"), "ends in .safetensors"),
        (("{run}", "--out", "{tmp}/a.safetensors", "--seed", "7"), "no seed 7; it has 3, 4"),
        (("{run}", "--out", "{tmp}/a.safetensors", "--seed", "worst"), "best, all or a number"),
        (("{run}", "--out", "{tmp}/a.safetensors", "--which", "best"), "does not exist yet"),
        (("{tmp}/nothing", "--out", "{tmp}/a.safetensors"), "does not exist"),
    ],
)
def test_an_export_that_cannot_be_is_one_message_and_leaves_nothing(run, tmp_path, args, words, capsys):
    with pytest.raises(SystemExit) as end:
        main(["export", *(arg.format(run=run, tmp=tmp_path) for arg in args), "--cpu"])
    assert end.value.code == 2
    assert words in " ".join(capsys.readouterr().err.split())
    assert not list(tmp_path.glob("*.safetensors*"))


def test_export_and_card_from_the_command_line(run, tmp_path, capsys):
    main(["export", str(run), "--out", str(tmp_path / "w.safetensors"), "--seed", "4", "--cpu"])
    assert "seed 4 success_any 0.6" in capsys.readouterr().out
    main(["policies", str(tmp_path / "w.safetensors"), "--json"])
    assert json.loads(capsys.readouterr().out)["seeds"] == [4]


def test_a_wrong_name_is_answered_with_the_right_ones(monkeypatch, tmp_path, file):
    monkeypatch.setattr(bundled, "FOLDER", tmp_path)
    assert shipped_names() == ("walk",)
    assert homing.load("walk").env == "walk"
    with pytest.raises(ConfigError, match="did you mean 'walk'"):
        homing.load("walks")
    with pytest.raises(ConfigError, match="shipped are: walk "):
        homing.load("zzz")
    with pytest.raises(ConfigError, match="does not exist"):
        homing.load("here/walk.safetensors")


def test_parameters_of_a_run_are_answered_with_its_folder(run):
    with pytest.raises(ConfigError, match=f"holds parameters only; name its run, {run} "):
        homing.load(run / "policies" / "last.safetensors")


def test_a_policy_file_may_lie_in_the_root_folder():
    """There is no folder above the one that it is in."""
    store._check_not_in_run(Path("/ant.safetensors"))


def test_an_agent_without_a_critic_says_so(file, monkeypatch):
    policy = homing.load(file)
    monkeypatch.delattr(type(policy._agent), "value")
    with pytest.raises(ConfigError, match="no critic"):
        policy.value(STATES, GOALS)


def test_numbers_that_16_bits_cannot_hold_are_not_stored_in_them(run, tmp_path, learner):
    enlarge = lambda x: np.full_like(x, 1e6) if x.dtype == np.float32 else x
    large = jax.tree.map(enlarge, jax.device_get(learner))
    save_policy(run / "policies" / "last.safetensors", large, 24)
    with pytest.raises(HomingError, match="too large for 16 bits"):
        homing.export(run, tmp_path / "a.safetensors", half=True)
    assert not (tmp_path / "a.safetensors").exists()
    assert homing.export(run, tmp_path / "a.safetensors").exists()


@pytest.mark.parametrize("name", [*AGENTS, "crl normalised", "crl chunk", "srl normalised"])
def test_every_agent_has_files(name, tmp_path):
    """Whatever an agent's learner looks like: act and value are the same before and after."""
    config = agent_types(name.split()[0])[0]()
    nets = {f.name: NET for f in dataclasses.fields(config) if isinstance(getattr(config, f.name), NetConfig)}
    config = dataclasses.replace(config, normalise_observations="normalised" in name, **nets)
    if "chunk" in name:
        config = dataclasses.replace(config, chunk=3)
    agent = make_agent(config, SPEC)
    learner = parameters(jax.tree.map(lambda x: jnp.asarray(x[None]), any_learner(agent, 1)))
    policies = Policies(
        "here", name.split()[0], agent, config, learner, (5,), SPEC, EnvChoice("walk"), 0, {"scores": []}
    )
    loaded = homing.load(write_policies(tmp_path / "a.safetensors", policies))
    direct = homing.Policy(policies)
    np.testing.assert_array_equal(loaded(STATES, GOALS), direct(STATES, GOALS))
    if agent.has_critic:
        np.testing.assert_array_equal(loaded.value(STATES, GOALS), direct.value(STATES, GOALS))
    else:
        assert name == "gcbc"
        with pytest.raises(ConfigError, match="no critic"):
            loaded.value(STATES, GOALS)
    assert loaded.plan(STATES, GOALS).shape == (3, agent.chunk, 2)
    np.testing.assert_array_equal(loaded.plan(STATES, GOALS), direct.plan(STATES, GOALS))
    assert loaded.seed == 5


load_once = functools.cache(homing.load)


@pytest.mark.parametrize("name", shipped_names())
def test_shipped_policies_fit_their_environments_and_have_cards(name):
    policy = load_once(name)
    env = policy.make_env()
    action = policy(np.zeros(env.spec.state_dim), np.zeros(env.spec.goal_dim))
    assert action.shape == (env.spec.action_dim,)
    page = markdown(name, policy.card, 1)
    for fact in ("environment steps", "trained on", "Measured by", f"`{policy.env}`"):
        assert fact in page
    assert shipped(name).stat().st_size < 8 * 2**20


def test_the_critic_is_asked_about_whole_plans():
    policy, rng = load_once("ant"), np.random.default_rng(0)
    assert policy.chunk == 2
    state = rng.normal(size=(5, policy.spec.state_dim)).astype(np.float32)
    goal = rng.normal(size=(policy.spec.goal_dim,)).astype(np.float32)
    plan, value = policy.plan(state, goal), policy.value(state, goal)
    for same in (plan, plan.reshape(5, -1)):
        np.testing.assert_allclose(policy.value(state, goal, same), value, rtol=1e-5)
    for wrong in (policy(state, goal), plan[:4], plan[..., :3], np.zeros(17)):
        with pytest.raises(ConfigError, match=r"policy\.plan has 2 actions, together 16 entries"):
            policy.value(state, goal, wrong)


def test_one_goal_may_be_that_of_many_states(file):
    policy = homing.load(file)
    same = np.broadcast_to(GOALS[0], GOALS.shape)
    for goal in (GOALS[0], GOALS[:1]):
        np.testing.assert_array_equal(policy(STATES, goal), policy(STATES, same))
        np.testing.assert_array_equal(policy.value(STATES, goal), policy.value(STATES, same))
    with pytest.raises(ConfigError, match="do not go together"):
        policy(STATES, GOALS[:2])
    with pytest.raises(ConfigError, match="state must be an array of numbers, not NoneType"):
        policy(None, GOALS)


@pytest.mark.parametrize("name", shipped_names())
def test_shipped_policies_act_as_they_always_did(name):
    """Weights to the bit; actions and values, recorded when they were first shipped, up to bfloat16's rounding."""
    recorded = json.loads((Path(__file__).parent / "shipped.json").read_text())[name]
    found = {key: hashlib.sha256(x.tobytes()).hexdigest()[:16] for key, x in load_file(shipped(name)).items()}
    assert found == recorded["weights"]
    policy, rng = load_once(name), np.random.default_rng(7)
    state = rng.normal(size=(5, policy.spec.state_dim)).astype(np.float32)
    goal = rng.normal(size=(5, policy.spec.goal_dim)).astype(np.float32)
    np.testing.assert_allclose(policy(state, goal), recorded["action"], atol=0.02)
    assert policy.has_critic == ("value" in recorded)
    if policy.has_critic:
        np.testing.assert_allclose(policy.value(state, goal), recorded["value"], rtol=0.02)
    assert from_json(policy.card["config"]).env == policy.env  # a card's settings have today's names


@pytest.mark.slow
@pytest.mark.parametrize("name", shipped_names())
def test_shipped_policies_achieve_what_their_cards_say(name):
    told = {row["seed"]: row["success_any"] for row in homing.load(name).card["scores"]}
    with jax.debug_key_reuse(False):
        rows = homing.evaluate(name, episodes=128, seed=7)["seeds"]
    for row in rows:
        assert row["success_any"] == pytest.approx(told[row["seed"]], abs=0.12)
