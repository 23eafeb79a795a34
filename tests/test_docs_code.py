"""What the docs tell a reader to type: every Python block runs, every command parses, no old name is left."""

import dataclasses
import functools
import re
import shlex
from pathlib import Path

import jax
import jax.numpy as jnp
import probes
import pytest
from forked import Server

from homing import api
from homing.agents import OnPolicyAgent, make_agent
from homing.cli.main import main
from homing.config.presets import preset
from homing.config.recipes import BEST, recipe_for
from homing.report.names import KNOWN
from homing.training.build import make_loop, make_plan

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
TEXTS = [*PAGES, ROOT / "results" / "README.md", ROOT / "CONTRIBUTING.md"]
NOT_RUN = re.compile(r"<!-- not run: \S.* -->")
# A page about a library that only `make test-ecosystem` installs.
NEEDS = re.compile(r"<!-- needs: (\S+) -->")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


# Python blocks.


def code_of(text: str) -> str:
    """The Python blocks of a page as one script, on the lines that they have in the page; the rest is blank."""
    kept, inside, skip, before = [], False, False, ""
    for line in text.splitlines():
        if line.startswith("```"):
            opens = not inside and line.strip() == "```python"
            inside, skip = opens, opens and bool(NOT_RUN.fullmatch(before))
            kept.append("")
        else:
            kept.append(line if inside and not skip else "")
        before = line.strip() or before
    return "\n".join(kept) + "\n"


def test_blocks_keep_their_lines_and_marked_ones_are_left_out():
    blocks = ["a = 1"], ["b"], ["d = a"]
    first, second, third = (["```python", *lines, "```"] for lines in blocks)
    page = ["text", *first, "<!-- not run: reason -->", "", *second, "```bash", "c", "```", *third]
    lines = code_of("\n".join(page)).splitlines()
    assert [(i, line) for i, line in enumerate(lines) if line] == [(2, "a = 1"), (13, "d = a")]


def test_few_blocks_are_left_out():
    marked = [name_of(p) for p in PAGES for line in p.read_text().splitlines() if NOT_RUN.fullmatch(line)]
    assert len(marked) <= 4, marked


# Pages that train for most of a minute; the others keep the mechanism tested at every change.
LONG = ("docs/training.md", "docs/howto/own-loss.md", "docs/ecosystem/data.md")
RUN = [
    pytest.param(page, marks=[pytest.mark.slow] if name_of(page) in LONG else [], id=name_of(page))
    for page in PAGES
    if code_of(page.read_text()).strip()
]


@functools.cache
def readers() -> Server:
    """Of processes that have imported libraries, which takes longer than most pages, and nothing of this one."""
    env = {"PYTHONPATH": str(ROOT / "src"), "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".cache" / "jax")}
    return Server("jax", "flax.linen", "optax", "mujoco", env=env)


@pytest.mark.parametrize("page", RUN)
def test_the_code_of_a_page_runs(page, tmp_path):
    """As a reader would run it: in a new process, in an empty folder."""
    for package in NEEDS.findall(page.read_text()):
        pytest.importorskip(package)
    # Named so that the page about a library does not stand in for it.
    script, work = tmp_path / f"page_{page.stem}.py", tmp_path / "work"
    script.write_text(code_of(page.read_text()))
    work.mkdir()
    with open(tmp_path / "errors", "w+") as errors:
        process = readers().start(script, cwd=work, errors=errors)
        out, _ = process.communicate(timeout=600)
    assert process.returncode == 0, (tmp_path / "errors").read_text()[-3000:]
    for line in outputs_of(page.read_text()):
        assert masked(line) in masked(out), f"the page shows another output: {line}\n{out}"


def outputs_of(text: str) -> list[str]:
    """Lines that a page shows as the output of a Python block: those of the text block right after it."""
    blocks = re.findall(r"^```python\n(?:(?!^```).)*^```\n\n```text\n((?:(?!^```).)*)^```", text, re.M | re.S)
    return [line for block in blocks for line in block.splitlines()]


def masked(text: str) -> str:
    """Without the numbers, which differ in their last digits between machines, and without blanks."""
    return re.sub(r"\s", "", re.sub(r"[-+]?\d+\.?\d*(?:e[-+]?\d+)?", "#", text))


def test_outputs_are_found_and_compared_without_their_numbers():
    page = "```python\nprint(1)\n```\n\n```text\n[(1, 0.5)]\n```\n\n```bash\nx\n```\n\n```text\nno\n```\n"
    assert outputs_of(page) == ["[(1, 0.5)]"]
    assert masked("[(200, 0.25)]") == masked("[(1, 1e-3)]") != masked("[(1, 2), (3, 4)]")
    shown = [name_of(p) for p in PAGES if outputs_of(p.read_text())]
    assert {f"docs/howto/own-{name}.md" for name in ("environment", "agent", "loss")} <= set(shown)


# Commands.

PLACEHOLDERS = {"ENV": "ant", "AGENT": "sac", "FLAGS": "", "RUN": "runs/x", "FOLDER": "runs/x"}


def commands_of(text: str) -> list[list[str]]:
    """Arguments of every `homing …` in blocks of shell commands and in inline code."""
    blocks = re.findall(r"^```(?:bash)?\n(.*?)^```", text, re.M | re.S)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    lines += re.findall(r"`([^`\n]+)`", prose)
    found = []
    for line in lines:
        command = re.match(r"(?:[A-Z_]+=\S+ |srun .*? )?homing ([a-z].*)", line.strip())
        if command:
            words = shlex.split(command[1].replace("…", ""), comments=True)
            found.append([PLACEHOLDERS.get(word, word) for word in words if PLACEHOLDERS.get(word, word)])
    return found


COMMANDS = [(name_of(page), args) for page in TEXTS for args in commands_of(page.read_text())]
# Two names after `train`, or it is talked about, not typed.
TRAINING = [(page, a) for page, a in COMMANDS if a[0] == "train" and len(a) > 2 and "--help" not in a]
OTHERS = [(page, a) for page, a in COMMANDS if a[0] != "train" and any(word[:2] == "--" for word in a)]


def test_there_are_commands():
    assert len(TRAINING) > 30 and len(OTHERS) > 30


@pytest.mark.parametrize(
    ("page", "args"), TRAINING, ids=lambda x: x if isinstance(x, str) else " ".join(x)[:60]
)
def test_a_documented_training_has_settings_that_exist(page, args, monkeypatch):
    if "--import" in args:
        pytest.skip("trains what a module of the reader's registers")
    seen = []
    monkeypatch.setattr(api, "prepared", lambda config, *_, **__: seen.append(config))
    main([*args, *([] if "--dry-run" in args else ["--dry-run"])])
    agent = recipe_for(args[2]).agent if args[1] == BEST else args[1]
    assert seen[0].agent == agent and seen[0].env == args[2]


GROUPS = ("bench", "data", "study")  # of commands


def help_of(args: list[str], capsys) -> str:
    """The help of the command that these arguments begin with."""
    deep = args[0] in GROUPS
    with pytest.raises(SystemExit):
        main([*args[: 2 if deep else 1], "--help"])
    return capsys.readouterr().out


def test_the_flags_of_other_documented_commands_exist(capsys):
    wrong, known = [], {}
    for page, args in OTHERS:
        begins = tuple(args[:2] if args[0] in GROUPS else args[:1])
        if begins not in known:
            known[begins] = help_of(args, capsys)
        flags = [word.partition("=")[0] for word in args if word[:2] == "--"]
        wrong += [f"{page}: {' '.join(args)}: {flag}" for flag in flags if flag not in known[begins]]
    assert not wrong


# Names that were replaced.

OLD = re.compile(
    r"mind[-_ ]falls|falls[-_]unminded|her[-_](?:share|others)|restart[-_]after|final[-_]rate|"
    r"(?:replay|prefill)[-_]rows|newest|--(?:storage|option|hosts|passes)\b|goal_(?:share|sampler|others)|\blanes?\b|lasting_loss|\btold\b|"
    r"homing[./](?:rollout|replay|relabel|nets|objectives|evaluation|settings|presets|compiler|traces|render)\b"
)


@pytest.mark.parametrize("page", TEXTS, ids=name_of)
def test_no_old_name_is_left(page):
    assert not OLD.findall(page.read_text())


# The glossary.


def measured_by(agent: str, **settings) -> set[str]:
    """Names of all that a run of the agent measures; only shapes are traced."""
    chosen = preset(agent, "quickstart")
    config = dataclasses.replace(chosen.agent, **settings)
    env = probes.walk(num_envs=chosen.train.num_envs)
    made = make_agent(config, env.spec)
    loop = make_loop(env, made, make_plan(chosen.train, env, made))
    train = jax.eval_shape(loop.init, jax.random.key(0))
    # Off-policy agents are measured at evaluations.
    trained = jax.eval_shape(loop.epoch, train, 0, 1)[1] if isinstance(made, OnPolicyAgent) else {}
    scores = jax.eval_shape(lambda state: loop.evaluate(state, jnp.int32(1), env), train)
    names = {f"train/{name}" for name in trained if name != "finite"}
    return names | {name if "/" in name else f"eval/{name}" for name in scores}


@pytest.mark.parametrize(
    ("agent", "settings"),
    [
        ("crl", {"survival_head": True, "bc_weight": 1.0}),
        ("srl", {"survival_weight": 1.0, "horizon": 20}),
        ("sac", {}),
        ("td3", {}),
        ("ppo", {}),
        ("gcbc", {}),
    ],
)
def test_the_glossary_has_every_metric(agent, settings, keys_reused_on_purpose):
    text = (ROOT / "docs" / "glossary.md").read_text()
    assert {name for name in measured_by(agent, **settings) | set(KNOWN) if f"`{name}`" not in text} == set()
