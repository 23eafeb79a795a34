"""Workflows, container and development container: they parse, and what they name exists."""

import fnmatch
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.M))


# Workflows.


def load(path: Path) -> dict:
    told = yaml.safe_load(path.read_text())
    told["on"] = told.pop(True)  # YAML 1.1 reads the key `on` as a truth value
    return told


def steps(path: Path) -> list[dict]:
    return [step for job in load(path)["jobs"].values() for step in job["steps"]]


def scripts(path: Path) -> str:
    return "\n".join(step["run"] for step in steps(path) if "run" in step)


def test_there_is_a_workflow_for_each_purpose():
    assert {path.stem for path in WORKFLOWS} == {"check", "test", "docs", "release"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_is_complete_and_asks_for_little(path):
    told = load(path)
    assert told["name"] == path.stem and told["on"] and told["permissions"] == {"contents": "read"}
    for name, job in told["jobs"].items():
        assert job["runs-on"] and job["timeout-minutes"], name
        assert set(job.get("needs", "").split()) <= set(told["jobs"])
        for step in job["steps"]:
            assert ("run" in step) != ("uses" in step), step
            if "uses" in step:
                assert re.fullmatch(r"[\w-]+/[\w-]+@\S+", step["uses"]), "actions have a version"


def check_schema(name: str, *paths: Path) -> subprocess.CompletedProcess:
    """`check-jsonschema` with one of the schemas that it carries: nothing is fetched."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{name}"]
    return subprocess.run([*command, *map(str, paths)], capture_output=True, text=True, timeout=120)


def test_workflows_and_citation_fit_their_published_schemas(tmp_path):
    done = check_schema("github-workflows", *WORKFLOWS)
    assert done.returncode == 0, done.stdout + done.stderr
    done = check_schema("citation-file-format", ROOT / "CITATION.cff")
    assert done.returncode == 0, done.stdout + done.stderr
    (tmp_path / "wrong.yml").write_text(WORKFLOWS[0].read_text().replace("runs-on", "run-on"))
    assert check_schema("github-workflows", tmp_path / "wrong.yml").returncode != 0


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_scripts_of_a_workflow_are_shell(path):
    for step in steps(path):
        if "run" in step:
            text = re.sub(r"\$\{\{.*?\}\}", "value", step["run"])  # filled in before the shell sees it
            done = subprocess.run(["bash", "-n", "-c", text], capture_output=True, text=True)
            assert done.returncode == 0, f"{step['run']}\n{done.stderr}"


def test_only_the_job_that_publishes_the_site_keeps_credentials():
    for path in WORKFLOWS:
        for name, job in load(path)["jobs"].items():
            kept = [
                step
                for step in job["steps"]
                if step.get("uses", "").startswith("actions/checkout@")
                and step.get("with", {}).get("persist-credentials") is not False
            ]
            assert bool(kept) == ((path.stem, name) == ("docs", "publish"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_make_target_of_a_workflow_exists(path):
    assert set(re.findall(r"\bmake ([a-z-]+)", scripts(path))) <= TARGETS


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_extra_of_a_workflow_exists(path):
    extras = set(PROJECT["optional-dependencies"])
    assert set(re.findall(r"\.\[([a-z]+)\]", scripts(path))) <= extras


def test_check_and_test_run_what_a_person_runs():
    by_name = {path.stem: scripts(path) for path in WORKFLOWS}
    assert "make check" in by_name["check"] and "make test\n" in by_name["test"] + "\n"
    assert "make site" in by_name["docs"]


def test_the_oldest_and_the_newest_are_tested():
    oldest, newest = load(ROOT / ".github/workflows/test.yml")["jobs"]["test"]["strategy"]["matrix"][
        "include"
    ]
    assert PROJECT["requires-python"] == f">={oldest['python']}"
    (jax,) = (text for text in PROJECT["dependencies"] if text.startswith("jax>"))
    low, high = re.fullmatch(r"jax>=(\S+),<(\S+)", jax).groups()
    assert oldest["jax"] == f"jax=={low}" and newest["jax"] == f"jax<{high}"
    named = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", c)]
    assert [named[0], named[-1]] == [oldest["python"], newest["python"]]


def test_releases_need_no_stored_password():
    path = ROOT / ".github/workflows/release.yml"
    assert load(path)["on"] == {"push": {"tags": ["v*"]}}
    publish = load(path)["jobs"]["publish"]
    assert publish["permissions"] == {"id-token": "write"} and publish["environment"] == "pypi"
    assert "secrets." not in path.read_text() and "password" not in str(publish)


def test_the_script_that_reads_the_version_finds_it():
    import homing

    script = scripts(ROOT / ".github/workflows/release.yml")
    code = re.search(r"python -c '(.+?)'", script)[1]
    text = (ROOT / "src/homing/version.py").read_text()
    pattern = re.search(r'r"(.+?)", open', code)[1].replace('\\"', '"')
    assert re.search(pattern, text)[1] == homing.__version__


def test_workflows_name_files_that_exist():
    for path in WORKFLOWS:
        for name in re.findall(r"cache-dependency-path: ([\w.]+)", path.read_text()):
            assert (ROOT / name).is_file()


# The container.

BASE_TOOLS = {"python", "apt-get"}  # of python:*-slim-bookworm, beside Debian's essential packages


def instructions() -> list[tuple[str, str]]:
    """(instruction, arguments) of the Dockerfile, with continued lines joined."""
    text = "\n".join(
        line for line in (ROOT / "Dockerfile").read_text().splitlines() if not line.startswith("#")
    )
    lines = [line for line in re.sub(r"\\\n\s*", " ", text).splitlines() if line.strip()]
    return [tuple(line.split(None, 1)) for line in lines]


def arguments_of(name: str) -> list[str]:
    return [rest for word, rest in instructions() if word == name]


def test_instructions_are_known_and_in_order():
    words = [word for word, _ in instructions()]
    assert set(words) <= {"ARG", "FROM", "RUN", "WORKDIR", "COPY", "USER", "ENV", "ENTRYPOINT", "CMD"}
    assert words[:2] == ["ARG", "FROM"] and words.index("USER") < words.index("ENTRYPOINT")
    assert json.loads(arguments_of("ENTRYPOINT")[0]) == ["homing"]
    assert isinstance(json.loads(arguments_of("CMD")[0]), list)


def test_every_source_that_is_copied_exists_and_is_not_ignored():
    rules = (ROOT / ".dockerignore").read_text().split()
    kept = {rule[1:] for rule in rules if rule.startswith("!")}
    assert rules[0] == "**"
    copied = [name for rest in arguments_of("COPY") for name in rest.split()[:-1]]
    for name in copied:
        assert (ROOT / name).exists() and name in kept
    assert kept == set(copied), "nothing else is sent to the daemon"


def test_what_the_package_needs_to_be_built_is_copied():
    copied = {name for rest in arguments_of("COPY") for name in rest.split()[:-1]}
    assert {"pyproject.toml", "src", PROJECT["readme"], *PROJECT["license-files"]} <= copied


def test_every_tool_that_is_run_exists():
    """In the base image, in Debian's essential packages (this machine has them), or as a script of the package."""
    scripts_ = set(PROJECT["scripts"])
    for rest in arguments_of("RUN"):
        for command in re.split(r"&&|\|\||;|\|", rest):
            tool = shlex.split(command)[0]
            assert tool in BASE_TOOLS | scripts_ or shutil.which(tool), tool
    installed = next(rest for rest in arguments_of("RUN") if "apt-get install" in rest)
    assert "apt-get update" in installed and "rm -rf /var/lib/apt/lists/*" in installed


def test_cuda_is_an_extra_and_the_default_is_the_cpu():
    assert 'EXTRAS=""' in arguments_of("ARG") and "cuda" in PROJECT["optional-dependencies"]
    install = next(rest for rest in arguments_of("RUN") if "pip install" in rest)
    # The shell's own expansion, as in the image.
    wanted = shlex.split(install)[-1]
    for extras, spec in (("", "."), ("cuda", ".[cuda]"), ("cuda,wandb", ".[cuda,wandb]")):
        said = subprocess.run(
            ["sh", "-c", f'echo "{wanted}"'], env={"EXTRAS": extras}, capture_output=True, text=True
        )
        assert said.stdout.strip() == spec


def test_the_python_of_the_container_is_one_that_is_tested():
    (default,) = (rest.partition("=")[2] for rest in arguments_of("ARG") if rest.startswith("PYTHON="))
    assert f"Programming Language :: Python :: {default}" in PROJECT["classifiers"]
    assert fnmatch.fnmatch(arguments_of("FROM")[0], "python:${PYTHON}-slim-*")


# The development container.


def test_the_development_container_sets_up_as_a_person_does():
    told = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    assert told["postCreateCommand"] == "make setup" and "setup" in TARGETS
    port = re.search(r"--dev-addr 127\.0\.0\.1:(\d+)", (ROOT / "Makefile").read_text())[1]
    assert {8080, int(port)} == set(told["forwardPorts"]) == set(map(int, told["portsAttributes"]))
