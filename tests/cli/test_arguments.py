"""Names and flags in any order, numbers as people write them, and the help of every flag."""

import re
import shlex

import pytest

from homing.agents import AGENTS
from homing.agents.crl import CRLConfig
from homing.cli import main as cli
from homing.cli.arguments import MANY, flags_of, split, take_imports, value_of
from homing.cli.train import arranged, train_arguments
from homing.config.presets import PRESETS, preset
from homing.config.run import RunConfig
from homing.errors import ConfigError
from homing.losses.contrastive import OBJECTIVES
from homing.losses.energies import ENERGIES
from homing.networks import NetConfig


def run(capsys, *args):
    """Exit code and what was printed."""
    code = 0
    try:
        cli.main(list(args))
    except SystemExit as end:
        code = int(end.code or 0)
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture
def configs(monkeypatch):
    """Configs of runs that would have been trained."""
    seen: list[RunConfig] = []
    monkeypatch.setattr("homing.cli.train._train", lambda asked, config: seen.append(config))
    return seen


ORDERS = [
    "sac reacher",
    "sac reacher --cpu --seeds 1",
    "--cpu --seeds 1 sac reacher",
    "--cpu sac --seeds 1 reacher",
    "--seeds=1 sac reacher --cpu",
    "--seeds 1 --env-option task.within=0.02 sac reacher",
    "--env-option task.within=0.02 task.name=reach sac reacher",
    "--her sac --entropy-target -0.5 reacher",
    "--no-her sac reacher --critic_lr 3e-4",
    "--critic-net.layer-norm sac --critic-net.width 8 reacher",
    "--critic-net.no-layer-norm --out x sac reacher",
]


@pytest.mark.parametrize("line", ORDERS)
def test_the_agent_is_the_one_named_wherever_it_stands(configs, monkeypatch, tmp_path, line):
    monkeypatch.chdir(tmp_path)
    cli.main(["train", *line.split()])
    (config,) = configs
    assert (config.agent, config.env) == ("sac", "reacher")
    assert type(config.settings) is AGENTS["sac"][0]


@pytest.mark.parametrize(
    "line", ["--preset PRESET AGENT ENV", "AGENT --preset=PRESET ENV", "AGENT ENV --preset PRESET"]
)
def test_presets_have_their_exceptions_wherever_they_stand(configs, line):
    for agent, env, name in (("crl", "humanoid", "paper"), ("crl", "ant", "fast"), ("td3", "ant", "fast")):
        words = line.replace("PRESET", name).replace("AGENT", agent).replace("ENV", env)
        cli.main(["train", *words.split()])
        assert configs[-1].train == preset(agent, name, env).train
        assert configs[-1].settings == preset(agent, name, env).agent
    assert [config.train.num_envs for config in configs] == [512, 1024, 1024]
    assert [config.train.train_episode_length for config in configs] == [None, 300, 300]


def test_flags_know_how_many_values_they_take():
    flags = flags_of(train_arguments("crl", "paper"))
    assert (flags["cpu"], flags["seeds"], flags["env-option"]) == (0, 1, MANY)
    own = flags_of(CRLConfig)
    assert own["critic-net.width"] == own["gamma"] == 1
    assert own["survival-head"] == own["no-survival-head"] == own["critic-net.no-layer-norm"] == 0
    assert flags_of(NetConfig)["dtype"] == 1


def test_names_and_flags_are_told_apart():
    flags = {"a": 0, "b": 1, "c": MANY}
    assert split(["--a", "x", "--b", "y", "z"], flags) == (["x", "z"], ["--a", "--b", "y"])
    assert split(["--b=1", "x"], flags) == (["x"], ["--b=1"])
    assert split(["--c", "m=1", "n=2", "x"], flags) == (["x"], ["--c", "m=1", "n=2"])
    assert split(["--b", "-3", "x"], flags) == (["x"], ["--b", "-3"])
    assert split(["--what", "v", "x"], flags) == (["x"], ["--what", "v"])
    assert split(["--what", "x"], flags, known=["x"]) == (["x"], ["--what"])
    assert split(["--help", "x"], flags) == (["x"], ["--help"])
    assert value_of("--b", ["--b", "1", "--b=2"]) == "2"
    assert value_of("--total-steps", ["--total_steps", "5"]) == "5"
    assert value_of("--b", ["--c"]) is value_of("--b", []) is value_of("--b", ["--b"]) is None


def test_a_misspelt_flag_does_not_change_the_agent():
    assert arranged(["--sedes", "3", "td3", "reacher"])[1] == ("td3", "paper", "reacher")


def test_imports_may_stand_anywhere():
    assert take_imports(["--import", "a", "train", "--import=b.c", "crl"]) == (["a", "b.c"], ["train", "crl"])
    for bad in (["--import"], ["--import", "--cpu"], ["--import="]):
        with pytest.raises(ConfigError, match="name of a module"):
            take_imports(bad)


def test_help_lists_every_objective_and_energy(capsys):
    code, out, _ = run(capsys, "train", "crl", "ant", "--help")
    words = set(re.findall(r"[a-z0-9_]+", out))
    assert code == 0
    assert set(OBJECTIVES) <= words and set(ENERGIES) <= words


@pytest.mark.parametrize("agent", AGENTS)
def test_every_flag_has_a_sentence(capsys, agent):
    _, out, _ = run(capsys, "train", agent, "ant", "--help")
    text = " ".join(out.replace("│", " ").split())
    flags = re.split(r" (?=--[a-z])", text)
    bare = [f for f in flags[1:] if re.fullmatch(r"--\S*\w( \S+)?( \(default: .*\))?", f)]
    assert not bare


COMMANDS = """
bench physics, bench train, bench learner, bench scaling, study list, study plan, study run, study retry,
study status, study report, study merge, resume, eval, report, watch, render, play, export, policies, envs,
data export, data import, data info
"""


@pytest.mark.parametrize("command", [name.split() for name in COMMANDS.split(",")], ids=" ".join)
def test_every_flag_of_other_commands_has_a_sentence(capsys, command):
    code, out, _ = run(capsys, *command, "--help")
    assert code == 0
    text = " ".join(out.replace("│", " ").split())
    bare = re.findall(r"--\S+ (?:\S+ )?\((?:default|required)[^)]*\)", text)
    assert not bare


@pytest.mark.parametrize("command", ["train crl ant", "envs", "render", "report", "study plan", "policies"])
def test_help_names_only_defaults_that_say_something(capsys, command):
    _, out, _ = run(capsys, *command.split(), "--help")
    text = " ".join(out.replace("│", " ").split())
    assert "(default: )" not in text and "(default: '')" not in text
    assert "(default: False)" not in text or "--no-" in text, "of a pair it says which one holds"
    found = re.findall(r"--([a-z-]+)\S*[^-]*?\(default: None\)", text)
    assert set(found) <= {"train-episode-length"}, "a setting, whose default is a value of it"


def test_the_help_of_training_names_the_presets_of_the_agent(capsys):
    for agent in AGENTS:
        _, out, _ = run(capsys, "train", agent, "ant", "--help")
        text = " ".join(out.replace("│", " ").split())
        assert f"Settings to start from: {', '.join(PRESETS[agent])}." in text


def test_environments_are_listed_by_a_part_of_their_name(capsys):
    code, out, _ = run(capsys, "envs", "humanoid_u")
    assert code == 0
    assert "5 environments" in out and "humanoid_u_maze_eval" in out and "reacher" not in out
    code, out, _ = run(capsys, "envs", "ant_ball_u")  # an alias
    assert "ant_soccer_u_maze" in out
    code, _, err = run(capsys, "envs", "antt")
    assert code == 2 and "did you mean 'ant'" in err


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("trian crl ant", "did you mean 'train'"),
        ("bench trai", "did you mean 'train'"),
        ("study pln", "did you mean 'plan'"),
        ("rendr", "did you mean 'render'"),
        ("zzz", "are known, for instance bench"),
        ("train best", "homing train best ENV"),
        ("train best --cpu", "homing train best ENV"),
        ("train ant crl", "homing train crl ant"),
    ],
)
def test_a_wrong_command_is_answered_with_the_right_one(capsys, line, words):
    code, _, err = run(capsys, *line.split())
    assert code == 2
    assert words in err and len(err.splitlines()) == 1


def test_names_of_policies_are_never_cut(capsys, monkeypatch):
    """However narrow the terminal, what one types is whole."""
    from types import SimpleNamespace

    names = ("ant_soccer_big_maze_eval_with_a_long_name", "ant")
    made = SimpleNamespace(
        card={"scores": []}, choice=SimpleNamespace(env="x" * 40), agent_name="crl", seeds=(0,)
    )
    monkeypatch.setattr("homing.policies.shipped_names", lambda: names)
    monkeypatch.setattr("homing.policies.find_policies", lambda name: made)
    monkeypatch.setattr("homing.policies.shipped", lambda name: __import__("pathlib").Path(__file__))
    monkeypatch.setenv("COLUMNS", "50")
    code, out, _ = run(capsys, "policies")
    assert code == 0
    assert names[0] in out and made.choice.env in out


def test_a_finished_run_names_the_commands_that_show_it(tmp_path, capsys):
    """As they are typed, also where the folder has a space in its name."""
    from types import SimpleNamespace

    from homing.cli.train import _tell
    from homing.runs.folder import RunFolder

    folder = RunFolder(tmp_path / "my run")
    folder.path.mkdir()
    stat = {"iqm": 0.5, "low": 0.4, "high": 0.6, "seeds": 2}
    folder.write_summary({"step": 1000, "last": {"eval/episode_length": stat, "eval/success_any": stat}})
    _tell(SimpleNamespace(status="finished", path=folder.path), quiet=False)
    out = capsys.readouterr().out
    commands = [shlex.split(line.split(":", 1)[1]) for line in out.splitlines() if "homing " in line]
    path = str(folder.path)
    assert commands == [
        ["homing", "play", path],
        ["homing", "report", path],
        ["homing", "render", path, "--out", "film.mp4"],
    ]
    assert "the interval of 2 seeds is too narrow" in out
    assert out.index("success_any") < out.index("episode_length"), "what counts comes first"


def test_one_seed_has_no_statistics(capsys):
    from homing.cli.evaluate import print_summary

    names = ["fell", "reached", "reached_1", "reached_10", "reached_2", "reached_all"]
    print_summary("a title wider than the table", {name: {"iqm": 0.5, "seeds": 1} for name in names})
    out = capsys.readouterr().out
    assert "1 seed" in out and "IQM" not in out and "interval" not in out
    assert "a title wider than the table" in out
    rows = re.findall(r"│ (\w+) ", out)
    assert rows == ["reached", "reached_all", "reached_1", "reached_2", "reached_10", "fell"]
