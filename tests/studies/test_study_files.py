"""Study files, the runs they stand for, and how those are planned."""

import re

import pytest
from run_helpers import no_key_check, probe_envs  # noqa: F401
from study_helpers import TESTS, TEXT, own_ledger  # noqa: F401

from homing.envs.registry import resolve
from homing.errors import ConfigError, HomingError
from homing.studies import planner, points, programs, spec
from homing.studies.points import Choice

pytestmark = pytest.mark.usefixtures("probe_envs")

MACHINE = planner.Machine("a device", 2**30)
GRID = "[run]\nagent = 'crl'\n[grid]\nenv = ['ant']\n"


@pytest.mark.parametrize("name", spec.shipped())
def test_every_study_that_comes_along_is_made_of_possible_runs(name):
    study = spec.load(name)
    made = points.points(study)
    assert len(made) == len(list(study.points())) > 1
    assert all(len(point.config.seeds) >= 5 for point in made)
    for point in made:
        resolve(point.config.env)
    small = points.points(study, Choice(scale=0.001, seeds=2))
    assert all(point.config.train.total_steps <= 300_000 for point in small)
    assert all(point.config.seeds == (0, 1) for point in small)


def test_the_studies_are_those_of_the_paper():
    counts = {name: {axis: len(v) for axis, v in spec.load(name).grid.items()} for name in spec.shipped()}
    assert counts["paper/objectives"]["objective"] == 10
    assert counts["paper/energies"]["energy"] == 5
    assert counts["paper/baselines"] == {"env": 11, "method": 6}
    large = [
        point for point in points.points(spec.load("paper/architecture")) if point.labels["env"] == "ant"
    ]
    with_norm = [point for point in large if point.config.settings.critic_net.layer_norm]
    assert len(large) == 10 and len(with_norm) == 1
    assert (with_norm[0].config.settings.actor_net.width, with_norm[0].config.settings.actor_net.depth) == (
        1024,
        4,
    )
    assert {point.config.train.total_steps for point in points.points(spec.load("paper/data_rich"))} == {
        300_000_000
    }


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("[grid]", "[gird]", "did you mean 'grid'"),
        ("representation_dim = 8", "representation_dims = 8", "did you mean 'representation_dim'"),
        ('energy = ["l2", "dot"]', 'energy = ["l3"]', "energy = l3"),
        ("num_envs = 8", "num_envs = 8.5", "num_envs is 8.5"),
        ('total_steps = "1920"', 'total_steps = "many"', "not a whole number"),
        ('lines = "critic_lr"', 'lines = "colour"', "unknown axis 'colour'"),
        ('kind = "curves"', 'kind = "pie"', "kind of figure"),
        ("[run]", "[run", "study tiny"),
    ],
)
def test_a_wrong_word_in_a_study_file_is_answered_with_the_right_ones(old, new, words):
    with pytest.raises(HomingError, match=words):
        points.points(spec.parse(TEXT.replace(old, new), "tiny"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (GRID + "[where]\nwhen = { env = 'ant' }\nnum_envs = 4", r"begins with \[\[where\]\]"),
        (GRID + "[skip]\nwhen = { env = 'ant' }", r"begins with \[\[skip\]\]"),
        (f"where = ['x']\n{GRID}", r"begins with \[\[where\]\]"),
        (GRID + "[[where]]\nwhen = { env = [['ant']] }", "when.env has"),
        (GRID + "critic_net = [{ width = 64 }, { width = 128 }]", r"first = { critic_net = { width = 64 } }"),
        (GRID + "seeds = [[0, 1], [2, 3]]", r"\[grid.seeds\], with a line such as first = { seeds"),
        (GRID + "net.width = [64, 128]", r'"net.width" = \[...\]'),
        ("grid = ['ant']\n[run]\nagent = 'crl'", r"grid must be a table, .* write \[grid\]"),
        ("run = 'x'\n[grid]\nenv = ['ant']", r"run must be a table, .* write \[run\]"),
        (f"figure = 'curves'\n{GRID}", r"figure must be a table, .* write \[figure\]"),
        (GRID + "[figure]\npanels = ['env']", "figure.panels must be a string"),
        (f"claims = 'It helps.'\n{GRID}", "claims must be a list"),
        (f"title = 3\n{GRID}", "title must be a string"),
        ("[run]\nagent = 'crl'\nenv = ['ant']\n[grid]\ngamma = [0.9]", r"\[grid\] a list of them"),
        (f"[run.critic_net]\nwidht = 3\n{GRID}", "did you mean 'width'"),
        (GRID + "[[skip]]\nwhen = { env = 'ant' }", "leave out the whole grid"),
        (GRID + "gamma = [1, 1.0]", "a value twice"),
    ],
)
def test_a_study_file_of_the_wrong_form_is_answered_with_the_right_one(text, words):
    with pytest.raises(HomingError, match=words):
        points.points(spec.parse(text, "tiny"))


def test_settings_of_networks_are_tables_or_dotted_names():
    table = "[run]\nnet.width = 64\ncritic_net = { residual = 'blocks', depth = 4 }\nagent = 'crl'\n"
    dotted = (
        "[run]\n'net.width' = 64\n'critic_net.residual' = 'blocks'\n'critic_net.depth' = 4\nagent = 'crl'\n"
    )
    ours, theirs = (
        points.points(spec.parse(text + "[grid]\nenv = ['ant']", "tiny"))[0].config.settings
        for text in (table, dotted)
    )
    assert ours == theirs
    assert (ours.critic_net.width, ours.critic_net.depth, ours.actor_net.width) == (64, 4, 64)


def test_a_study_may_set_the_reward(monkeypatch):
    text = TEXT.replace("[grid]", "[grid]\nreward = ['sparse', 'dense']").replace('"l2", "dot"', '"l2"')
    made = points.points(spec.parse(text, "tiny"))
    assert [point.config.reward for point in made] == ["sparse", "sparse", "dense", "dense"]
    built, build = [], planner.build
    monkeypatch.setattr(planner, "build", lambda config: built.append(config.reward) or build(config))
    plan = planner.plan(made, MACHINE)
    assert built == ["sparse", "dense"], "environments of other rewards are others"
    assert len(plan.programs) == 2
    with pytest.raises(HomingError, match="did you mean 'dense'"):
        points.points(spec.parse(TEXT.replace("[grid]", "reward = 'dens'\n[grid]"), "tiny"))


def test_the_page_names_every_shipped_study_and_every_field_of_a_run():
    page = (TESTS.parent / "docs" / "studies.md").read_text()
    assert [name for name in spec.shipped() if f"`{name}`" not in page] == []
    assert [name for name in points.RUN_FIELDS if f"`{name}`" not in page] == []


def test_the_page_shows_a_plan_as_it_is_printed(monkeypatch):
    made = planner.plan(points.points(spec.parse(TEXT, "tiny")), MACHINE)
    monkeypatch.setattr(programs.Program, "seconds", lambda self, entries: (60.0, "measured"))
    page = (TESTS.parent / "docs" / "studies.md").read_text()
    (shown,) = re.findall(r"```\n(\d+ programs train.*?)```", page, re.DOTALL)
    words = lambda line: re.sub(r"\d+\S*", "N", line)
    printed, page_lines = str(made).splitlines(), shown.splitlines()
    assert words(printed[0]) == words(page_lines[0])
    assert printed[1].endswith(page_lines[1].partition("…")[2])


def test_rules_change_a_part_of_the_grid_and_skip_another():
    more = '[[where]]\nwhen = { energy = "dot" }\nbatch_size = 16\n'
    more += "[[skip]]\nwhen = { energy = 'dot', critic_lr = 3e-3 }\n"
    study = spec.parse(TEXT + more, "tiny")
    found = [(labels, changes["batch_size"]) for labels, changes in study.points()]
    assert [(labels["energy"], labels["critic_lr"], size) for labels, size in found] == [
        ("l2", 1e-3, 32),
        ("l2", 3e-3, 32),
        ("dot", 1e-3, 16),
    ]
    with pytest.raises(HomingError, match="unknown value of energy"):
        spec.parse(TEXT + '[[skip]]\nwhen = { energy = "dott" }\n', "tiny")


def test_a_scale_shortens_in_proportion_and_leaves_what_is_learned_with():
    config = points.points(spec.load("paper/objectives"))[0].config
    short = points.scaled(config, 0.02)
    assert short.train.total_steps == 1_000_000
    assert (short.train.replay_size, short.train.prefill_steps) == (200, 62)
    assert short.train.num_envs == 512
    assert short.settings == config.settings and short.train.batch_size == config.train.batch_size
    with pytest.raises(ConfigError, match="scale 2"):
        Choice(scale=2)


def test_only_some_of_the_runs_by_their_labels():
    made = points.points(spec.load("paper/energies"))
    chosen = points.selected(made, points.parse_only(["energy=l2,dot", "env=ant"]))
    assert [point.name for point in chosen] == ["ant-dot", "ant-l2"]
    with pytest.raises(HomingError, match="did you mean 'l2'"):
        points.selected(made, {"energy": ["l22"]})
    with pytest.raises(HomingError, match="unknown axis"):
        points.selected(made, {"colour": ["red"]})
    with pytest.raises(ConfigError, match="AXIS=LABEL"):
        points.parse_only(["ant"])


def test_runs_that_differ_in_values_share_a_program_as_far_as_memory_goes():
    made = points.points(spec.parse(TEXT, "tiny"))
    plan = planner.plan(made, MACHINE)
    assert [[point.name for point in program.points] for program in plan.programs] == [
        ["l2-critic_lr_0.001", "l2-critic_lr_0.003"],
        ["dot-critic_lr_0.001", "dot-critic_lr_0.003"],
    ]
    assert plan.programs[0].values == ["critic_lr"]
    assert (plan.runs, plan.seeds, plan.steps) == (4, 8, 8 * 1920)
    assert "unknown on a device; measure it with --measure" in str(plan)
    each = plan.programs[0].plan.bytes_per_seed
    room_for_two = planner.plan(made[:2], planner.Machine("a device", 2 * each))
    assert [program.seeds for program in room_for_two.programs] == [2, 2]
    cut = planner.plan(made[:1], planner.Machine("a device", each))
    assert [program.points[0].name for program in cut.programs] == [
        "l2-critic_lr_0.001.seeds_0-0",
        "l2-critic_lr_0.001.seeds_1-1",
    ]
    with pytest.raises(ConfigError, match="one seed of crl on walk needs"):
        planner.plan(made[:1], planner.Machine("a device", each // 2))


def test_settings_from_outside_go_to_the_agents_that_have_them():
    study = spec.load("paper/baselines")
    made = points.points(study, Choice(changes={"updates_per_step": "1/64", "net.width": 64}))
    ratios = {point.labels["method"]: getattr(point.config.train, "updates_per_step", None) for point in made}
    assert ratios.pop("PPO") is None
    assert set(ratios.values()) == {1 / 64}
    assert all(point.config.settings.actor_net.width == 64 for point in made)
    with pytest.raises(HomingError, match="did you mean 'updates_per_step'"):
        points.points(study, Choice(changes={"updates_per_stp": 0.5}))


def test_a_plan_begins_with_its_totals_and_lists_programs_when_asked(tmp_path, capsys, monkeypatch):
    from homing.cli import main

    monkeypatch.setattr("homing.studies.reference.seconds", lambda config, plan, seeds: 1800.0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = planner.plan(points.points(spec.parse(TEXT, "tiny")), MACHINE)
    monkeypatch.setattr(planner, "plan", lambda *_: made)
    file = tmp_path / "tiny.toml"
    file.write_text(TEXT)
    main.main(["study", "plan", str(file), "--cpu"])
    short = capsys.readouterr().out.splitlines()
    assert short[0].startswith("2 programs train 4 runs with 8 seeds")
    assert short[1].startswith("time     unknown on ")
    assert short[2].startswith(
        "time     about 1:00:00 on NVIDIA H200 (rough estimate from results/train_h200.json"
    )
    (row,) = [line for line in short if "walk" in line]
    assert "≈ 1:00:00" in row
    assert not any("critic_lr" in line for line in short)
    main.main(["study", "plan", str(file), "--cpu", "--programs"])
    long = capsys.readouterr().out.splitlines()
    assert long[0] == short[0]
    assert sum("runs that differ in critic_lr" in line for line in long[4:]) == 2
