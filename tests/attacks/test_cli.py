"""Bad input through the command line: one message, the right exit code, nothing written, no traceback."""

import io
import json
import math
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from homing import bounds
from homing.agents import AGENTS
from homing.cli import guard
from homing.cli.main import main
from homing.config.offpolicy import TrainConfig
from homing.config.onpolicy import OnPolicyConfig
from homing.config.presets import PRESETS
from homing.config.run import SaveConfig
from homing.networks import NetConfig
from homing.values import hints_of

SECONDS = 10.0


def run(capsys, args):
    """Exit code, standard output and standard error of a command, and the CPU seconds that it took."""
    code, start = 0, time.process_time()
    try:
        main([str(arg) for arg in args])
    except SystemExit as end:
        code = end.code
    out, err = capsys.readouterr()
    return code, out, err, time.process_time() - start


def check_refused(capsys, args, code=2):
    got, out, err, seconds = run(capsys, args)
    said = out + err
    assert got == code, f"{args}: exit code {got}\n{said}"
    assert "Traceback" not in said and "unexpected error" not in said, said
    assert said.strip()
    assert seconds < SECONDS
    return " ".join(said.replace("│", " ").split())


KEPT: set[str] = set()  # files that a test has put into its folder


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path, monkeypatch):
    """Each command runs in a folder that stays as it was."""
    KEPT.clear()
    monkeypatch.chdir(tmp_path)
    yield
    assert {path.name for path in tmp_path.iterdir()} == KEPT


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


TRAIN = """
crll reacher
crl
crl reachr
crl reacher ant
--cpu
3 reacher
crl 3
crl reacher --preset no
crl reacher --preset
crl reacher --presett paper
crl reacher --seeds 0
crl reacher --seeds -1
crl reacher --seeds 1.5
crl reacher --seeds 100000000
crl reacher --seeds x
crl reacher --seeds 1e400
crl reacher --seed-list 1,1
crl reacher --seed-list a
crl reacher --seed-list ,
crl reacher --seed-list -1
crl reacher --seed-list 99999999999
crl reacher --seeds 2 --seed-list 1,2
crl reacher --steps 0
crl reacher --steps -5
crl reacher --steps 1e12
crl reacher --steps many
crl reacher --steps 1.5
crl reacher --steps 10
crl reacher --steps 1M --total-steps 1M
crl reacher --episode-length 0
crl reacher --episode-length 1e12
crl reacher --episode-length -1
crl reacher --physics warp
crl reacher --reward gold
crl ant_push --physics spring
crl reacher --eval-env mars
crl reacher --eval-env ant
crl reacher --env-option task.within
crl reacher --env-option task.within=
crl reacher --env-option task.within=NaN
crl reacher --env-option task.within=Infinity
crl reacher --env-option task.within=0
crl reacher --env-option task.within=-1
crl reacher --env-option task.within=1e9
crl reacher --env-option task.within=near
crl reacher --env-option task.within=[1]
crl reacher --env-option task.within={}
crl reacher --env-option task.withn=1
crl reacher --env-option =1
crl reacher --env-option task=1
crl reacher --env-option task.goals.radius=-1
crl reacher --env-option task.goals.radius=NaN
crl reacher --env-option task.within=0.1 task.within=0.2
crl ant_u_maze --env-option arena.layout=v
crl ant_u_maze --env-option arena.cell=-1
crl ant_u_maze --env-option arena.cell=NaN
crl reacher --devices 0
crl reacher --devices -1
crl reacher --devices many
crl reacher --devices 100000000
crl reacher --objective none
crl reacher --energy l3
crl reacher --critic-net.activation sin
crl reacher --critic-net.dtype float8
crl reacher --critic-net.residual some
crl reacher --critic-net.residual blocks --critic-net.depth 3
crl reacher --critic-net.depth 1000
crl reacher --replay-dtype float8
crl reacher --replay-size 5
crl reacher --prefill-steps 100000
crl reacher --unroll-length 40000
crl reacher --batch-size 1
srl reacher --batch-size 1
crl reacher --representation-dim 1 --survival-head
crl reacher --wandb maybe
crl reacher --tensorboard 3
crl reacher --her
crl reacher --minibatches 3
ppo reacher --replay-size 100
ppo reacher --num-envs 100
sac reacher --her-strategy nearest
sac reacher --her --reward dense --replay-dtype float16
srl reacher --future-ratio 0.9 --current-ratio 0.9
crl reacher --updates-per-step 1/0
crl reacher --updates-per-step 1e-12
crl reacher --updates-per-step -1/16
crl reacher --import
crl reacher --import no_such_module
crl reacher --import 3x
crl reacher --import a/b
crl reacher --import=
crl reacher --out /proc/run
crl reacher --out ""
crl reacher --out /dev/null
crl reacher --out /dev/null/run
crl reacher --multi-host
"""


@pytest.mark.parametrize("line", TRAIN.strip().splitlines())
def test_train_refuses(capsys, line):
    check_refused(capsys, ["train", *shlex.split(line), "--dry-run"] if "--import" not in line else
                  ["train", "--dry-run", *shlex.split(line)])  # fmt: skip


LONG = "a" * 300
OTHERS = f"""
trian
trainn crl ant
3
-x
--no-such-flag
envs zzz
envs --jsn
envs a b
doctor now
policies no_such_policy
policies /nowhere/x.safetensors
policies --jsn
resume
resume /nowhere
resume .
resume {LONG}
resume . --devices 0
eval
eval /nowhere
eval .
eval no_such_policy
eval ant --episodes 0
eval ant --episodes -1
eval ant --episodes 1e12
eval ant --episodes nan
eval ant --seed -1
eval ant --seed 99999999999999999999999
eval ant --seed x
eval ant --which first
eval {LONG}
export
export . --out x.safetensors
export /nowhere --out x.safetensors
export . --out x.txt
export . --out .
export . --out /proc/x.safetensors
export . --out {LONG}.safetensors
export . --out x.safetensors --episodes 0
export . --out x.safetensors --which first
render
render ant
render antt --out x.png
render ant --out x.bmp
render ant --out x
render ant --out .
render ant --out /proc/x.png
render ant --out {LONG}.png
render ant --out x.png --width 0
render ant --out x.png --width 1e9
render ant --out x.png --width -3
render ant --out x.png --height 1e9
render ant --out x.png --height nan
render ant --out x.png --steps 0
render ant --out x.png --steps 1e12
render ant --out x.png --episodes 0
render ant --out x.png --episodes 1e12
render ant --out x.png --start-seed -1
render ant --out x.png --start-seed 1e30
render ant --out x.png --policy best
render ant --out x.png --policy zero --paths
render ant --out x.png --policy zero --map goals
render ant --out x.png --paths --map goals
render ant --out x.png --map walls
render ant --out x.png --policy zero --physics warp
render ant --out x.png --policy zero --env-option task.within
render ant --out x.png --policy zero --env-option task.within=-1
render ant --out x.png --policy zero --env-option task.wthin=1
render ant reacher --out x.png --policy zero
render . --out x.png
render /nowhere --out x.png
play antt
play .
play /nowhere
play ant --env mars
play ant --seed -1
play ant --which first
play ant --port -1
report /nowhere
report .
report . --out /proc/x.html
report . --out .
report . --out {LONG}.html
report . --csv /proc/x.csv
report . --figures /dev/null
report . --by color
report . --formats bmp
watch /nowhere --no-browser
watch . --no-browser --port 99999
watch . --no-browser --port -1
watch . --no-browser --by color
bench
bench trian
bench physics --env mars
bench physics --num-envs 0
bench physics --num-envs -1
bench physics --num-envs 1e10
bench physics --steps 0
bench physics --steps 1e12
bench physics --repeats 0
bench physics --repeats 1e9
bench physics --env reacher --physics warp
bench physics --out /proc/x.json
bench physics --out .
bench train --env mars
bench train --agent no
bench train --preset no
bench train --seconds 0
bench train --seconds nan
bench train --seconds inf
bench train --seconds -1
bench train --seeds 0
bench train --num-envs 0
bench train --batch-size 0
bench train --prefill-steps -1
bench train --replay-dtype float8
bench train --net-dtype float8
bench train --out /proc/x.json
bench learner --env mars
bench learner --agent no
bench learner --seconds 0
bench learner --seeds 0
bench learner --batch-size 1
bench learner --batch-size 0
bench scaling all
bench scaling --what planets
bench scaling --nets 3by3
bench scaling --env mars
bench scaling --seconds nan
bench scaling --figure x.bmp
bench scaling --figure /proc/x.png
bench scaling --out .
study
study pln paper/objectives
study list --jsn
study plan
study plan no_such_study
study plan no.toml
study plan paper/objectives --scale 0
study plan paper/objectives --scale 2
study plan paper/objectives --scale nan
study plan paper/objectives --seeds 0
study plan paper/objectives --seeds 1e9
study plan paper/objectives --memory nan
study plan paper/objectives --memory 0
study plan paper/objectives --memory -1
study plan paper/objectives --memory inf
study plan paper/objectives --population 0
study plan paper/objectives --workers -1
study plan paper/objectives --workers 1e9
study plan paper/objectives --only env
study plan paper/objectives --only planet=mars
study plan paper/objectives --only env=mars
study plan paper/objectives --set num_envs
study plan paper/objectives --set num_envs=0
study plan paper/objectives --set gamma=2
study plan paper/objectives --set gama=0.9
study plan paper/objectives --set critic_lr=NaN
study plan paper/objectives --set net.width=0
study plan paper/objectives --set net.widht=3
study plan paper/objectives --set seeds=x
study plan paper/objectives --set total_steps=many
study plan paper/objectives --set env_options=3
study run no_such_study
study run paper/objectives --executor cloud
study run paper/objectives --scale 0
study run paper/objectives --out /proc/x
study run paper/objectives --out /dev/null
study retry no_such_study
study retry .
study status .
study status no_such_study
study report .
study report /nowhere.csv
study report no_such_study
study merge --out x.txt
study merge --out x.csv
study merge . --out x.csv
study merge /nowhere.csv --out x.csv
study work . x
study work .
study work /nowhere
study work . --dead-after 0
study work . --dead-after nan
study work . --workers -1
quickstart --out /proc/x
quickstart --out /dev/null
completion
completion powershell
"""


@pytest.mark.parametrize("line", OTHERS.strip().splitlines())
def test_other_commands_refuse(capsys, line):
    check_refused(capsys, shlex.split(line))


CONFIGS = {
    "empty": "",
    "no JSON": "{",
    "a list": "[]",
    "null": "null",
    "a number": "3",
    "a text": '"crl"',
    "no agent": '{"env": "ant"}',
    "no env": '{"agent": "crl", "train": {}, "settings": {}}',
    "no train": '{"agent": "crl", "env": "ant", "settings": {}}',
    "agent of another type": '{"agent": 3, "env": "ant", "train": {}, "settings": {}}',
    "agent unknown": '{"agent": "clr", "env": "ant", "train": {}, "settings": {}}',
    "env unknown": '{"agent": "crl", "env": "mars", "train": {}, "settings": {}}',
    "train a number": '{"agent": "crl", "env": "ant", "train": 3, "settings": {}}',
    "unknown setting": '{"agent": "crl", "env": "ant", "train": {"num_env": 3}, "settings": {}}',
    "bad setting": '{"agent": "crl", "env": "ant", "train": {"num_envs": "3"}, "settings": {}}',
    "setting outside": '{"agent": "crl", "env": "ant", "train": {"num_envs": 0}, "settings": {}}',
    "NaN": '{"agent": "crl", "env": "ant", "train": {}, "settings": {"gamma": NaN}}',
    "settings of another": '{"agent": "crl", "env": "ant", "train": {}, "settings": {"her": true}}',
    "imports": '{"agent": "crl", "env": "ant", "train": {}, "settings": {}, "imports": ["no_such_module"]}',
    "imports no list": '{"agent": "crl", "env": "ant", "train": {}, "settings": {}, "imports": "os"}',
    "imports no name": '{"agent": "crl", "env": "ant", "train": {}, "settings": {}, "imports": ["../x"]}',
    "bytes": "\udcff",
}


@pytest.mark.parametrize(
    "command", ["resume RUN", "eval RUN", "render RUN --out x.png", "export RUN --out x.safetensors"]
)
@pytest.mark.parametrize("content", CONFIGS.values(), ids=CONFIGS)
def test_broken_config_files_are_refused(capsys, tmp_path, content, command):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.json").write_text(content, errors="surrogateescape")
    KEPT.add("run")
    check_refused(capsys, shlex.split(command.replace("RUN", str(folder))))


TABLES = {
    "empty": b"",
    "no columns of a study": b"a,b\n1,2\n",
    "bytes": b"\x00\x01\xff",
    "a JSON file": b'{"run": 1}',
    "a text": b"hello\nworld\n",
    "no numbers": b"study,run,seed,step,iteration,eval/success_any\nx,a,b,c,d,e\n",
    "holes": b"study,run,seed,step,iteration,eval/success_any\nx,a,0,10,1,0.5\n,,,,,\n",
    "no metric": b"study,run,seed,step,iteration\nx,a,0,10,1\n",
}


@pytest.mark.parametrize("content", TABLES.values(), ids=TABLES)
def test_tables_that_are_none_of_a_study(capsys, tmp_path, content):
    (tmp_path / "t.csv").write_bytes(content)
    KEPT.add("t.csv")
    check_refused(capsys, ["study", "report", tmp_path / "t.csv"])


STUDIES = {
    "empty": "",
    "no TOML": "[run",
    "unknown key": "[rnu]\nagent = 'crl'\n[grid]\nenv = ['ant']",
    "no agent": "[run]\n[grid]\nenv = ['ant']",
    "no env": "[run]\nagent = 'crl'\n[grid]\ngamma = [0.9]",
    "unknown setting": "[run]\nagent = 'crl'\ngama = 1\n[grid]\nenv = ['ant']",
    "outside": "[run]\nagent = 'crl'\ngamma = 2.0\n[grid]\nenv = ['ant']",
    "nan": "[run]\nagent = 'crl'\ncritic_lr = nan\n[grid]\nenv = ['ant']",
    "inf": "[run]\nagent = 'crl'\ncritic_lr = inf\n[grid]\nenv = ['ant']",
    "bad seeds": "[run]\nagent = 'crl'\nseeds = 'x'\n[grid]\nenv = ['ant']",
    "no seeds": "[run]\nagent = 'crl'\nseeds = 0\n[grid]\nenv = ['ant']",
    "too many seeds": "[run]\nagent = 'crl'\nseeds = 1000000000\n[grid]\nenv = ['ant']",
    "old name": "[run]\nagent = 'crl'\noptions = {}\n[grid]\nenv = ['ant']",
    "options": "[run]\nagent = 'crl'\nenv_options = { 'task.within' = -1.0 }\n[grid]\nenv = ['ant']",
    "grid of a number": "[run]\nagent = 'crl'\n[grid]\nenv = 3",
    "grid of nothing": "[run]\nagent = 'crl'\n[grid]\nenv = []",
    "agent a number": "[run]\nagent = 3\n[grid]\nenv = ['ant']",
    "env a number": "[run]\nagent = 'crl'\n[grid]\nenv = [3]",
    "run a list": "run = []\n[grid]\nenv = ['ant']",
    "episode length": "[run]\nagent = 'crl'\nepisode_length = 0\n[grid]\nenv = ['ant']",
    "batch of one": "[run]\nagent = 'crl'\nbatch_size = 1\n[grid]\nenv = ['ant']",
    "network": "[run]\nagent = 'crl'\ncritic_net = { width = 0 }\n[grid]\nenv = ['ant']",
    "network no table": "[run]\nagent = 'crl'\ncritic_net = 3\n[grid]\nenv = ['ant']",
    "bytes": "\udcff",
}


@pytest.mark.parametrize("content", STUDIES.values(), ids=STUDIES)
def test_broken_study_files_are_refused(capsys, tmp_path, content):
    (tmp_path / "s.toml").write_text(content, errors="surrogateescape")
    KEPT.add("s.toml")
    check_refused(capsys, ["study", "plan", tmp_path / "s.toml"])


def test_there_are_many_attacks():
    lines = [*TRAIN.strip().splitlines(), *OTHERS.strip().splitlines()]
    count = 3 * len(NUMBERS) + len(lines) + 4 * len(CONFIGS) + len(TABLES) + len(STUDIES)
    assert count >= 400
    assert len(set(lines)) == len(lines)


# The last line of defence.


def test_an_unexpected_error_is_one_line_and_its_traceback_a_file(capsys, monkeypatch, tmp_path):
    def fails(*_):
        raise RuntimeError("a bug\nwith lines")

    monkeypatch.setattr("homing.system.doctor.examine", fails)
    code, out, err, _ = run(capsys, ["doctor"])
    assert code == 1 and not out
    assert err.startswith("homing: unexpected error: RuntimeError: a bug; please report it, traceback in /")
    assert len(err.splitlines()) == 1
    path = err.partition("traceback in ")[2].split()[0]
    text = Path(path).read_text()
    Path(path).unlink()
    assert "Traceback" in text and "def fails" not in text and "a bug" in text
    monkeypatch.setenv(guard.DEBUG, "1")
    with pytest.raises(RuntimeError):
        main(["doctor"])


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (PermissionError(13, "Permission denied", "/x/y"), "'/x/y': Permission denied"),
        (OSError(28, "No space left on device", "/x"), "No space left"),
        (MemoryError("17 GiB"), "out of memory"),
        (RuntimeError("RESOURCE_EXHAUSTED: Out of memory"), "lower num_envs"),
    ],
)
def test_what_the_machine_refuses_is_no_bug(capsys, monkeypatch, error, words):
    def fails(*_):
        raise error

    monkeypatch.setattr("homing.system.doctor.examine", fails)
    code, _, err, _ = run(capsys, ["doctor"])
    assert code == 1
    assert words in err and "unexpected" not in err and len(err.splitlines()) == 1


class Closed(io.StringIO):
    """An output whose reader is gone."""

    def write(self, text):
        raise BrokenPipeError(32, "Broken pipe")

    def fileno(self):
        return os.open(os.devnull, os.O_WRONLY)


@pytest.mark.parametrize(
    "line", ["envs --json", "envs", "policies --help", "--help", "--version", "study list"]
)
def test_a_closed_pipe_ends_a_command_quietly(capsys, monkeypatch, line):
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", Closed())
        with pytest.raises(SystemExit) as end:
            main(line.split())
    assert end.value.code in (guard.CLOSED_PIPE, 1)  # 1 where rich, which prints tables, noticed first
    assert capsys.readouterr().err == ""


@pytest.mark.slow
@pytest.mark.parametrize("line", ["envs --json", "envs", "--help", "study list --json"])
def test_a_real_pipe_that_closes(line):
    command = f"{shlex.quote(sys.executable)} -m homing {line} | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=120, env=os.environ)
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 1


def test_configs_of_the_attacks_are_otherwise_right():
    """The broken files differ from a config that is read in what they are called by."""
    from homing.config.run import from_json

    good = {"agent": "crl", "env": "ant", "train": {}, "settings": {}}
    assert from_json(json.loads(json.dumps(good))).train == TrainConfig()
    assert from_json({**good, "agent": "ppo"}).train == OnPolicyConfig()
