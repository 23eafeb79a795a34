"""Bad input through the command line: one message, the right exit code, nothing written, no traceback."""

import json
import math
import shlex

import pytest
from cli_attacks import OTHERS, TRAIN
from cli_helpers import check_refused, kept  # noqa: F401
from file_attacks import CONFIGS, STUDIES, TABLES

from homing import bounds
from homing.agents import AGENTS
from homing.config.offpolicy import TrainConfig
from homing.config.onpolicy import OnPolicyConfig
from homing.config.presets import PRESETS
from homing.config.run import SaveConfig
from homing.networks import NetConfig
from homing.values import hints_of


def flags_of(agent):
    """(flag, range, type) of every number that `homing train AGENT` takes."""
    config, kind = AGENTS[agent][0], type(PRESETS[agent]["paper"].train)
    for owner in (config, kind, SaveConfig):
        for name, hint in hints_of(owner).items():
            if hint in (int, float):
                yield f"--{name.replace('_', '-')}", bounds.range_of(owner, name), hint
            elif hint is NetConfig:
                for inner, plain in hints_of(NetConfig).items():
                    if plain in (int, float):
                        yield f"--{name.replace('_', '-')}.{inner}", bounds.range_of(NetConfig, inner), plain


OWN = [agent for agent in AGENTS if AGENTS[agent][0].__module__.startswith("homing.")]
NUMBERS = {
    (flag, str(range)): (agent, flag, range, plain) for agent in OWN for flag, range, plain in flags_of(agent)
}


@pytest.mark.parametrize(
    ("agent", "flag", "range", "plain"), NUMBERS.values(), ids=[f"{a}{f}" for a, f, *_ in NUMBERS.values()]
)
def test_every_number_of_train_outside_its_range(capsys, agent, flag, range, plain):
    below = range.low if range.above else range.low - 1
    values = [f"{below:.17g}", "nan", "x"] + (
        [] if math.isinf(range.high) else [f"{range.high * 2 + 1:.17g}"]
    )
    for value in values:
        said = check_refused(capsys, ["train", agent, "reacher", "--dry-run", f"{flag}={value}"])
        if value not in ("nan", "x"):
            assert flag.rpartition(".")[2].lstrip("-").replace("-", "_") in said


@pytest.mark.parametrize("line", TRAIN.strip().splitlines())
def test_train_refuses(capsys, line):
    check_refused(capsys, ["train", *shlex.split(line), "--dry-run"] if "--import" not in line else
                  ["train", "--dry-run", *shlex.split(line)])  # fmt: skip


@pytest.mark.parametrize("line", OTHERS.strip().splitlines())
def test_other_commands_refuse(capsys, line):
    check_refused(capsys, shlex.split(line))


@pytest.mark.parametrize(
    "command", ["resume RUN", "eval RUN", "render RUN --out x.png", "export RUN --out x.safetensors"]
)
@pytest.mark.parametrize("content", CONFIGS.values(), ids=CONFIGS)
def test_broken_config_files_are_refused(capsys, tmp_path, kept, content, command):  # noqa: F811
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.json").write_text(content, errors="surrogateescape")
    kept.add("run")
    check_refused(capsys, shlex.split(command.replace("RUN", str(folder))))


@pytest.mark.parametrize("content", TABLES.values(), ids=TABLES)
def test_tables_that_are_none_of_a_study(capsys, tmp_path, kept, content):  # noqa: F811
    (tmp_path / "t.csv").write_bytes(content)
    kept.add("t.csv")
    check_refused(capsys, ["study", "report", tmp_path / "t.csv"])


@pytest.mark.parametrize("content", STUDIES.values(), ids=STUDIES)
def test_broken_study_files_are_refused(capsys, tmp_path, kept, content):  # noqa: F811
    (tmp_path / "s.toml").write_text(content, errors="surrogateescape")
    kept.add("s.toml")
    check_refused(capsys, ["study", "plan", tmp_path / "s.toml"])


def test_there_are_many_attacks():
    lines = [*TRAIN.strip().splitlines(), *OTHERS.strip().splitlines()]
    count = 3 * len(NUMBERS) + len(lines) + 4 * len(CONFIGS) + len(TABLES) + len(STUDIES)
    assert count >= 400
    assert len(set(lines)) == len(lines)


def test_configs_of_the_attacks_are_otherwise_right():
    """The broken files differ from a config that is read in what they are called by."""
    from homing.config.run import from_json

    good = {"agent": "crl", "env": "ant", "train": {}, "settings": {}}
    assert from_json(json.loads(json.dumps(good))).train == TrainConfig()
    assert from_json({**good, "agent": "ppo"}).train == OnPolicyConfig()
