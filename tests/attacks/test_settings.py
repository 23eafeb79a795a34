"""Settings at and beyond their bounds: what lies inside makes a config, what lies outside is one message."""

import dataclasses
import math
import types
import typing

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import homing
from homing import bounds
from homing.agents import AGENTS
from homing.bounds import BOUNDS
from homing.config.offpolicy import TrainConfig
from homing.config.onpolicy import OnPolicyConfig
from homing.config.presets import PRESETS
from homing.config.run import RunConfig, SaveConfig, parse_seeds, run_config
from homing.envs.arenas import Floor, Maze, Table
from homing.envs.bodies import Ant, Panda, PandaHand
from homing.envs.cell_pairs import CellPairs
from homing.envs.goals import Around, Away, Box, FreeCells, InReach, Points, Ring
from homing.envs.renewal import GoalOptions
from homing.envs.tasks import Cube, Grasp, MoveCube, PushPucks, Reach, Soccer
from homing.errors import ConfigError, HomingError, UnknownNameError, shown
from homing.networks import NetConfig
from homing.values import Range, hints_of

CONFIGS = [*(config for config, _ in AGENTS.values()), TrainConfig, OnPolicyConfig, SaveConfig, NetConfig]
OWN = [kind for kind in CONFIGS if kind.__module__.startswith("homing.")]
PARTS = [
    lambda **change: Reach(("x", "y"), Ring(1.0), **change),
    lambda **change: Soccer(Ring(1.0), **change),
    lambda **change: PushPucks((Box((0.0,), (1.0,)),), (Box((0.0,), (1.0,)),), **change),
]


def plain_types(hint):
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def number_fields(kind):
    """Names and types of the numbers among a config's fields."""
    for name, hint in hints_of(kind).items():
        found = [plain for plain in plain_types(hint) if plain in (int, float)]
        if found:
            yield name, found[0]


NUMBERS = [(kind, name, plain) for kind in OWN for name, plain in number_fields(kind)]
IDS = [f"{kind.__name__}.{name}" for kind, name, _ in NUMBERS]


@pytest.mark.parametrize(("kind", "name", "plain"), NUMBERS, ids=IDS)
def test_every_number_has_a_range_that_holds_its_default(kind, name, plain):
    range = bounds.range_of(kind, name)
    assert range is not None, f"{kind.__name__}.{name} is missing in homing.bounds.BOUNDS"
    default = getattr(kind(), name)
    assert default is None or default in range


def test_the_table_names_no_setting_that_does_not_exist():
    parts = (Ring, Points, Away, Around, FreeCells, CellPairs, InReach, Reach, Soccer, PushPucks, GoalOptions)
    parts = (*parts, Ant, Box, Floor, Maze, Panda, PandaHand, Cube, Table, MoveCube, Grasp)
    kinds = {kind.__name__: kind for kind in (*OWN, RunConfig, *parts)}
    for owner, known in BOUNDS.items():
        if owner in kinds:
            fields = {field.name for field in dataclasses.fields(kinds[owner])}
        elif owner == "ActorCriticConfig":
            fields = {"alpha_lr", "entropy_target"} | {f.name for f in dataclasses.fields(AGENTS["td3"][0])}
        else:
            assert owner == "command"
            continue
        assert set(known) <= fields, owner


def beyond(range: Range, plain: type) -> list[float]:
    """The nearest numbers outside a range, and far ones."""
    step = (lambda x, to: x + (1 if to > x else -1)) if plain is int else math.nextafter
    low = range.low if range.above else step(range.low, -math.inf)
    found = [low, range.low - 1e9]
    if math.isfinite(range.high):
        found += [range.high if range.below else step(range.high, math.inf), range.high * 2 + 1]
    return found


def refused(kind, name, value):
    with pytest.raises((ConfigError, UnknownNameError)) as caught:
        kind(**{name: value})
    message = str(caught.value)
    assert name.split(".")[-1].replace("_", " ") in message.replace("_", " ")
    assert len(message.splitlines()) == 1 and len(message) < 400
    return message


@pytest.mark.parametrize(("kind", "name", "plain"), NUMBERS, ids=IDS)
def test_just_outside_is_refused_with_value_and_range(kind, name, plain):
    range = bounds.range_of(kind, name)
    for value in beyond(range, plain):
        message = refused(kind, name, plain(value))
        assert range.words(whole=plain is int) in message
        assert shown(plain(value)) in message or f"{value:g}" in message


BAD = ["x", "", True, False, [], {}, (1,), object(), np.zeros(3), 1j, "nan", b"1", float("nan"), lambda: 1]


@pytest.mark.parametrize(("kind", "name", "plain"), NUMBERS, ids=IDS)
def test_what_is_no_number_is_refused(kind, name, plain):
    for value in BAD:
        refused(kind, name, value)
    infinite = math.isinf(bounds.range_of(kind, name).high)
    for value in (math.inf, -math.inf):
        if value < 0 or not infinite:
            refused(kind, name, value)
    if plain is int:
        refused(kind, name, 2.5)
    if None not in (getattr(kind(), name),):
        refused(kind, name, None)


def attempt(kind, name, value):
    """The config, or the message that refuses it."""
    try:
        return kind(**{name: value})
    except HomingError as error:
        return str(error)


@settings(max_examples=300)
@given(data=st.data())
def test_numbers_inside_are_taken_and_numbers_outside_refused(data):
    kind, name, plain = data.draw(st.sampled_from(NUMBERS))
    range = bounds.range_of(kind, name)
    edge = min(range.high, 2**63)
    around = st.one_of(
        st.integers(-10, 10).map(lambda n: range.low + n),
        st.integers(-10, 10).map(lambda n: edge + n),
        st.floats(0, 1).map(lambda share: range.low + share * (edge - range.low)),
        st.floats(allow_nan=True, allow_infinity=True),
    )
    value = data.draw(around)
    whole = isinstance(value, int) or (math.isfinite(value) and float(value).is_integer())
    inside = value in range and (whole or plain is float)
    if not inside:
        refused(kind, name, value)
        return
    made = attempt(kind, name, value)
    if isinstance(made, str):  # two settings may not go together though each is right
        assert any(word in made for word in ("with", "together", "fit", "hold", "residual")), made
    else:
        assert type(getattr(made, name)) is plain
        assert getattr(made, name) == plain(value)


@pytest.mark.parametrize("kind", OWN, ids=lambda kind: kind.__name__)
def test_texts_flags_and_choices_are_checked(kind):
    for name, hint in hints_of(kind).items():
        if hint is bool:
            for value in (1, 0, "yes", None, [], 0.5):
                refused(kind, name, value)
        elif hint is str or typing.get_origin(hint) is typing.Literal:
            for value in (1, None, "no such choice", [], b"x"):
                refused(kind, name, value)
        elif hint is NetConfig:
            for value in (1, None, "wide", {"width": 3}):
                refused(kind, name, value)


def test_numbers_of_other_libraries_become_plain_ones():
    made = AGENTS["crl"][0](
        gamma=np.float32(0.5), representation_dim=np.int64(8), critic_lr=jax.numpy.ones(())
    )
    assert (type(made.gamma), type(made.representation_dim), type(made.critic_lr)) == (float, int, float)
    assert type(AGENTS["crl"][0](alpha_lr=0).alpha_lr) is float
    assert TrainConfig(total_steps=1e6).total_steps == 1_000_000


def test_traced_values_pass():
    config = AGENTS["crl"][0]

    def rate(value):
        return config(critic_lr=value).critic_lr * 2

    assert float(jax.jit(rate)(3.0)) == 6.0


@pytest.mark.parametrize("make", PARTS)
@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, "near", None, True])
def test_thresholds_are_positive_numbers(make, value):
    with pytest.raises(ConfigError, match="within"):
        make(within=value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Ring(math.nan),
        lambda: Ring(-1.0),
        lambda: Ring("far"),
        lambda: Points(((math.nan, 0.0),)),
        lambda: Points(((0.0, 0.0),), spread=-1.0),
        lambda: Away(math.inf),
        lambda: Around(1.0, math.inf),
        lambda: FreeCells(spread=math.nan),
        lambda: CellPairs(least=0),
        lambda: CellPairs(most=math.nan),
        lambda: GoalOptions(renew=-3),
        lambda: Box((math.nan,), (1.0,)),
        lambda: Box((0.0,), (math.inf,)),
        lambda: Box(("a",), (1.0,)),
        lambda: Box(0.0, (1.0,)),
        lambda: Points((("a", "b"),)),
        lambda: Points((1.0, 2.0)),
        lambda: Table(("left", 0.2)),
        lambda: Table((0.2,)),
        lambda: Table(3.0),
        lambda: PushPucks(((0.0, 1.0),), (Box((0.0,), (1.0,)),)),
        lambda: Reach(("x", "y"), 3),
        lambda: Reach(("x", "y"), Ring(1.0), starts=3),
    ],
)
def test_distributions_of_goals_are_checked(make):
    with pytest.raises(ConfigError):
        make()


OPTIONS = [
    {"task.within": math.nan},
    {"task.within": -1},
    {"task.within": 0},
    {"task.within": math.inf},
    {"task.within": "0.3"},
    {"task.within": None},
    {"task.within": True},
    {"task.within": [1]},
    {"task.withn": 1},
    {"task": 1},
    {"task": None, "x": 1},
    {"": 1},
    {".": 1},
    {"task.": 1},
    {"task.goals": 3},
    {"task.goals": "ring"},
    {"task.goals.radius": -3},
    {"task.goals.radius": math.nan},
    {"task.goals.radius": "3"},
    {"task.goals.outer": 1.0},
    {"task.goals.outer": "wide"},
    {"task.name": 3},
    {"task.goal": "torso_x"},
    {"task.margins": 3},
    {"task.margins": {"success_easy": math.nan}},
    {"task.margins": {"success_easy": -1}},
    {"task.margins": {"success_easy": "x"}},
    {"task.margins": {"success": 3.0}},
    {"task.margins": {"distance": 3.0}},
    {"task.parts": 3},
    {"task.parts": 0},
    {"task.starts": 3},
    {"body": "ant"},
    {"arena": "maze"},
    {"arena.half": math.nan},
    {"arena.half": "x"},
    {3: 1},
    [("task.within", 1)],
    "task.within=1",
    3,
]


@pytest.mark.parametrize("options", OPTIONS, ids=repr)
def test_options_of_environments_are_checked(options):
    with pytest.raises(HomingError) as caught:
        homing.make("ant", options=options)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("bins", [(0.17, -0.17), (0.1, 0.2)])
def test_bins_that_overlap_are_refused(bins):
    with pytest.raises(ConfigError, match="overlap; the first is the left one"):
        homing.make("arm_binpick_easy", options={"arena.bins": bins})


def test_solver_options_are_mujocos():
    with pytest.raises(UnknownNameError, match="did you mean 'iterations'"):
        homing.make("ant_push", options={"body.solver": (("iteration", 2),)})


def test_options_may_be_numbers_of_numpy_and_none_where_a_setting_is_optional():
    options = {"task.within": np.float32(0.25), "body.any_heading": np.True_, "goals.renew": np.int64(3)}
    spec = homing.make("ant", options={**options, "body.healthy": None}).scene.spec
    assert (spec.task.within, spec.body.any_heading, spec.goals.renew) == (0.25, True, 3)
    assert type(spec.task.within) is float and spec.body.healthy is None
    healthy = ["root_z", -1.0, 1.0]
    assert homing.make("half_cheetah", options={"body.healthy": healthy}).spec.ends_early


def test_lists_and_arrays_of_numbers_become_tuples():
    box = Box(np.zeros(2), [1, 2])
    assert (box.low, box.high) == ((0.0, 0.0), (1.0, 2.0))
    assert Points([[0, 1], [2, 3]]).points == ((0.0, 1.0), (2.0, 3.0))


def test_a_run_has_options_that_its_file_can_hold():
    run = lambda value: run_config("crl", "ant", env_options={"task.within": value, "task.goals.radius": 3})
    options = run(np.float32(0.25)).env_options
    assert options == {"task.within": 0.25, "task.goals.radius": 3}
    assert type(options["task.within"]) is float
    with pytest.raises(ConfigError, match=r"not Ring\(.*register an environment of your own"):
        run_config("crl", "ant", env_options={"task.goals": Ring(1.0)})


CALLS = [
    lambda: homing.train(3, "ant"),
    lambda: homing.train(None, "ant"),
    lambda: homing.train([], "ant"),
    lambda: homing.train("crll", "ant"),
    lambda: homing.train("crl", None),
    lambda: homing.train("crl", 3),
    lambda: homing.train("crl", "antt"),
    lambda: homing.train("crl", "ant", seeds="abc"),
    lambda: homing.train("crl", "ant", seeds=0),
    lambda: homing.train("crl", "ant", seeds=-1),
    lambda: homing.train("crl", "ant", seeds=2.5),
    lambda: homing.train("crl", "ant", seeds=None),
    lambda: homing.train("crl", "ant", seeds=True),
    lambda: homing.train("crl", "ant", seeds=[]),
    lambda: homing.train("crl", "ant", seeds=[1, 1]),
    lambda: homing.train("crl", "ant", seeds=[-1]),
    lambda: homing.train("crl", "ant", seeds=[2**31]),
    lambda: homing.train("crl", "ant", seeds=["0"]),
    lambda: homing.train("crl", "ant", seeds=[0.5]),
    lambda: homing.train("crl", "ant", seeds=10**9),
    lambda: homing.train("crl", "ant", steps=-1),
    lambda: homing.train("crl", "ant", steps=0),
    lambda: homing.train("crl", "ant", steps="many"),
    lambda: homing.train("crl", "ant", steps=2.5),
    lambda: homing.train("crl", "ant", steps=10**12),
    lambda: homing.train("crl", "ant", steps=1000, total_steps=1000),
    lambda: homing.train("crl", "ant", preset="no"),
    lambda: homing.train("crl", "ant", preset=7),
    lambda: homing.train("crl", "ant", preset=[]),
    lambda: homing.train("crl", "ant", out=3),
    lambda: homing.train("crl", "ant", eval_env="mars"),
    lambda: homing.train("crl", "ant", eval_env=3),
    lambda: homing.train("crl", "ant", eval_env="reacher"),
    lambda: homing.train("crl", "ant", episode_length=0),
    lambda: homing.train("crl", "ant", episode_length=10**12),
    lambda: homing.train("crl", "ant", episode_length="long"),
    lambda: homing.train("crl", "ant", episode_length=2.5),
    lambda: homing.train("crl", "ant", physics="sprnig"),
    lambda: homing.train("crl", "ant", physics=3),
    lambda: homing.train("crl", "ant", reward="gold"),
    lambda: homing.train("crl", "ant", reward=1),
    lambda: homing.train("crl", "ant", env_options={"task.within": -1}),
    lambda: homing.train("crl", "ant", env_options="task.within=1"),
    lambda: homing.train("crl", "ant", env_options=[1]),
    lambda: homing.train("crl", "ant", devices=-1),
    lambda: homing.train("crl", "ant", devices="all"),
    lambda: homing.train("crl", "ant", batch_size=1),
    lambda: homing.train("srl", "ant", batch_size=1),
    lambda: homing.train("crl", "ant", gamma=1.0),
    lambda: homing.train("crl", "ant", gamme=0.9),
    lambda: homing.train("crl", "ant", options={}),
    lambda: homing.train("crl", "ant", critic_net={"widht": 3}),
    lambda: homing.train("crl", "ant", critic_net={"width": 0}),
    lambda: homing.train("crl", "ant", critic_net={"width": "3"}),
    lambda: homing.train("crl", "ant", critic_net={3: 4}),
    lambda: homing.train("crl", "ant", critic_net=3),
    lambda: homing.train("ppo", "humanoid", actor_net={"activation": "gold"}),
    lambda: homing.train("crl", "ant", her=True),
    lambda: homing.train("ppo", "ant", replay_size=100),
    lambda: homing.train("sac", "ant", her="yes"),
    lambda: homing.train("crl", "ant", prefetch_bytes=0),
    lambda: homing.train("crl", "ant", tensorboard="maybe"),
    lambda: homing.make(None),
    lambda: homing.make(3),
    lambda: homing.make([]),
    lambda: homing.make("mars"),
    lambda: homing.make(""),
    lambda: homing.make("ant", num_envs="x"),
    lambda: homing.make("ant", num_envs=0),
    lambda: homing.make("ant", num_envs=-5),
    lambda: homing.make("ant", num_envs=None),
    lambda: homing.make("ant", num_envs=1.5),
    lambda: homing.make("ant", num_envs=10**10),
    lambda: homing.make("ant", episode_length=0),
    lambda: homing.make("ant", episode_length=None),
    lambda: homing.make("ant", episode_length=10**12),
    lambda: homing.make("ant", physics="x"),
    lambda: homing.make("ant", physics=3),
    lambda: homing.make("ant", reward=None),
    lambda: homing.make("ant", reward=[]),
    lambda: homing.register("", None, None),
    lambda: homing.register(3, None, None),
    lambda: homing.register("Ant Man", None, None),
    lambda: homing.register("ant", None, None),
    lambda: homing.load(None),
    lambda: homing.load(3),
    lambda: homing.load("no_such_policy"),
    lambda: homing.load("/nowhere/run"),
    lambda: homing.load("ant", which="first"),
    lambda: homing.load("ant", seed="x"),
    lambda: homing.load("ant", seed=-1),
    lambda: homing.evaluate(None),
    lambda: homing.evaluate("ant", episodes=0),
    lambda: homing.evaluate("ant", episodes=10**12),
    lambda: homing.evaluate("ant", episodes="x"),
    lambda: homing.evaluate("ant", seed=2**70),
    lambda: homing.evaluate("ant", seed=-1),
    lambda: homing.evaluate("ant", seed=None),
    lambda: homing.evaluate("/nowhere"),
    lambda: homing.resume(None),
    lambda: homing.resume("/nowhere"),
    lambda: homing.resume(3),
    lambda: homing.export(None, "x.safetensors"),
    lambda: homing.export("/nowhere", "x.safetensors"),
    lambda: homing.export("/nowhere", None),
    lambda: homing.export("/nowhere", "x.txt"),
    lambda: homing.export("/nowhere", "x.safetensors", episodes=0),
    lambda: homing.export("ant", "x.safetensors", seed=1.5),
    lambda: homing.export("ant", "x.safetensors", seed=[0]),
    lambda: homing.export("ant", "x.safetensors", chain=0),
    lambda: homing.export("ant", "x", hf=True, license=3),
    lambda: homing.evaluate("ant", chain=2.5),
    lambda: homing.evaluate("ant", chain_steps=5),
    lambda: homing.train("crl", "ant", seeds=1.5),
    lambda: homing.train("crl", "ant", seeds=[0, 0.5]),
    lambda: run_config("crl", "ant", seeds=()),
    lambda: RunConfig("crl", "ant", TrainConfig(), PRESETS["sac"]["paper"].agent),
    lambda: RunConfig("sac", "ant", TrainConfig(), PRESETS["crl"]["paper"].agent),
    lambda: RunConfig("crl", "ant", OnPolicyConfig(), PRESETS["crl"]["paper"].agent),
    lambda: RunConfig("ppo", "ant", TrainConfig(), PRESETS["ppo"]["paper"].agent),
    lambda: RunConfig("crl", "ant", None, PRESETS["crl"]["paper"].agent),
    lambda: RunConfig("crl", "ant", TrainConfig(), None),
    lambda: RunConfig("crl", "ant", TrainConfig(), PRESETS["crl"]["paper"].agent, save=None),
    lambda: RunConfig("crl", "ant", TrainConfig(), PRESETS["crl"]["paper"].agent, imports=("a b",)),
    lambda: RunConfig("crl", "ant", TrainConfig(), PRESETS["crl"]["paper"].agent, imports=("",)),
]


@pytest.mark.parametrize("call", CALLS, ids=range(len(CALLS)))
def test_wrong_calls_are_one_message_before_anything_is_written(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(HomingError) as caught:
        call()
    assert len(str(caught.value).splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_numbers_of_other_types_are_plain_numbers():
    found = bounds.check_values(episodes=512.0, chain=np.int32(5), seed=jax.numpy.uint32(7), devices=None)
    assert [(type(value), value) for value in found[:3]] == [(int, 512), (int, 5), (int, 7)]
    assert found[3] is None
    assert type(bounds.check_value("noise", 1)) is float


@pytest.mark.parametrize("seeds", [2.0, np.int64(2), [0, 1], (np.int32(0), 1.0), np.arange(2).tolist()])
def test_seeds_of_other_types_are_plain_numbers(seeds):
    config = run_config("crl", "ant", seeds=parse_seeds(homing.api._whole_seeds(seeds)))
    assert [(type(seed), seed) for seed in config.seeds] == [(int, 0), (int, 1)]


def test_there_are_many_attacks():
    assert len(NUMBERS) * (4 + len(BAD)) + len(OPTIONS) + len(CALLS) >= 400
