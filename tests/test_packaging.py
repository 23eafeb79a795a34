"""What is shipped: metadata, the files of a wheel and of a source distribution, and that an installed one works."""

import fnmatch
import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from importlib.resources import files
from pathlib import Path

import pytest
import yaml

import homing

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGE = ROOT / "src" / "homing"


def data_files() -> set[str]:
    """Files of the package that are no Python, by their place in a wheel."""
    found = (path for path in PACKAGE.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc"))
    return {path.relative_to(ROOT / "src").as_posix() for path in found}


def test_type_checkers_read_the_annotations():
    shipped = PROJECT["tool"]["setuptools"]["package-data"]
    assert (files("homing") / "py.typed").is_file() and "py.typed" in shipped["homing"]


def test_every_file_of_the_package_is_declared():
    patterns = [
        f"{package.replace('.', '/')}/{pattern}"
        for package, each in PROJECT["tool"]["setuptools"]["package-data"].items()
        for pattern in each
    ]
    missing = {name for name in data_files() if not any(fnmatch.fnmatch(name, p) for p in patterns)}
    assert not missing, "add it to [tool.setuptools.package-data]"
    assert len(data_files()) > 10


def test_the_metadata_says_who_and_under_which_licence():
    project = PROJECT["project"]
    assert project["license"] == "Apache-2.0" and project["authors"] == [{"name": "The Homing developers"}]
    assert "Apache License" in (ROOT / project["license-files"][0]).read_text()
    assert project["keywords"] and project["urls"] and project["readme"] == "README.md"
    assert not [c for c in project["classifiers"] if c.startswith("License")], "the expression replaces it"
    assert "setuptools>=77" in PROJECT["build-system"]["requires"]


def test_the_citation_is_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == homing.__version__
    assert {"cff-version", "message", "title", "authors"} <= set(citation)


def test_every_change_is_checked_and_tested():
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    assert lines.index("make check") < lines.index("make test") < lines.index("make test-ecosystem")


def pins_of(name: str) -> dict[str, set[str]]:
    """Lines of a constraints file by package."""
    pins: dict[str, set[str]] = {}
    for line in (ROOT / name).read_text().splitlines():
        if line and not line.startswith("#"):
            pins.setdefault(line.partition("==")[0], set()).add(line)
    return pins


def test_both_virtual_environments_have_the_same_versions():
    main, ecosystem = pins_of("constraints.txt"), pins_of("constraints-ecosystem.txt")
    assert {name for name in main if ecosystem.get(name) != main[name]} == {"pillow"}, (
        "moviepy asks for pillow<12"
    )


def test_every_adapter_has_an_extra():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {
        extra
        for path in (ROOT / "src" / "homing" / "adapters").glob("*.py")
        for extra in re.findall(r'raise missing_package\("[\w.]+", "(\w+)"', path.read_text())
    }
    assert {"gymnasium", "sb3", "gymnax", "stoa"} <= named <= set(extras)


def test_pre_commit_runs_what_make_check_runs():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    recipe = (ROOT / "Makefile").read_text().partition("\ncheck: ")[2].split("\n\n")[0]
    for hook in hooks:
        tool = hook["entry"].removeprefix(".venv/bin/")
        assert f"$(BIN)/{tool}" in recipe
    assert len(hooks) == recipe.count("$(BIN)/")


# A wheel, built from a source distribution, in an environment that has nothing of the repository.


def run(command: list, cwd: Path, **env: str) -> str:
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=clean | env,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Source distribution, wheel, and a virtual environment with the wheel and the dependencies found here.

    Only setuptools is fetched, as every `pip install .` does.
    """
    work = tmp_path_factory.mktemp("package")
    venv, python = work / "venv", work / "venv" / "bin" / "python"
    run([sys.executable, "-m", "venv", venv], work)
    run([python, "-m", "pip", "install", "--quiet", "setuptools>=77"], work)
    tree, out = work / "tree", work / "dist"
    tree.mkdir()
    names = run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"], ROOT).split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_bytes((ROOT / name).read_bytes())
    make = "import setuptools.build_meta as b, sys; print(b.build_sdist(sys.argv[1]))"
    out.mkdir()
    run([python, "-c", make, out], tree)
    (sdist,) = out.glob("*.tar.gz")
    flags = ["--no-deps", "--no-build-isolation", "--quiet"]
    run([python, "-m", "pip", "wheel", *flags, "-w", out, sdist], work)
    (wheel,) = out.glob("*.whl")
    (site,) = (venv / "lib").glob("python*/site-packages")
    run([python, "-m", "pip", "install", "--no-deps", "--quiet", wheel], work)
    # Dependencies come from the environment of the tests. Its own `homing` is an editable install, which is found
    # by a .pth file, and those of a folder that is added by one are not read.
    (site / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return sdist, wheel, venv


@pytest.mark.slow
def test_wheel_and_source_distribution_hold_every_file(installed):
    sdist, wheel, _ = installed
    inside = set(zipfile.ZipFile(wheel).namelist())
    modules = {path.relative_to(ROOT / "src").as_posix() for path in PACKAGE.rglob("*.py")}
    assert data_files() | modules <= inside
    assert not {name for name in inside if name.split("/")[0] != "homing" and ".dist-info/" not in name}
    with tarfile.open(sdist) as archive:
        stored = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/{name}" for name in data_files() | modules} <= stored
    assert {"LICENSE", "README.md", "CHANGELOG.md", "CITATION.cff", "constraints.txt"} <= stored


@pytest.mark.slow
def test_the_wheel_carries_the_metadata(installed):
    _, wheel, _ = installed
    archive = zipfile.ZipFile(wheel)
    name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = Parser().parsestr(archive.read(name).decode())
    assert metadata["License-Expression"] == "Apache-2.0" and metadata["License-File"] == "LICENSE"
    assert metadata["Author"] == "The Homing developers" and metadata["Version"] == homing.__version__
    assert metadata["Description-Content-Type"] == "text/markdown" and len(metadata.get_payload()) > 1000
    assert {"cuda", "dev", "slurm"} <= set(metadata.get_all("Provides-Extra"))


@pytest.mark.slow
def test_the_installed_package_works_without_the_repository(installed, tmp_path):
    _, _, venv = installed
    where = "import homing, sys; print(homing.__file__); print(homing.__version__)"
    place, version = run([venv / "bin" / "python", "-c", where], tmp_path).split()
    assert Path(place).is_relative_to(venv) and version == homing.__version__
    assert "No broken requirements" in run([venv / "bin" / "python", "-m", "pip", "check"], tmp_path)
    command, env = venv / "bin" / "homing", {"JAX_PLATFORMS": "cpu"}
    assert run([command, "--version"], tmp_path).strip() == f"homing {version}"
    findings = json.loads(run([command, "doctor", "--json"], tmp_path, **env))
    assert findings and not [finding for finding in findings if finding["fix"]]
    policies = json.loads(run([command, "policies", "--json"], tmp_path, **env))
    assert {"ant", "reacher"} <= set(policies)
    assert run([command, "recipes"], tmp_path, **env) and run([command, "study", "list"], tmp_path, **env)
    dry = run([command, "train", "best", "ant", "--dry-run", "--cpu"], tmp_path, **env)
    assert "steps" in dry
    cache = {"JAX_COMPILATION_CACHE_DIR": str(ROOT / ".cache" / "jax")}
    film = [command, "render", "point_u_maze", "--out", "film.png", "--steps", "5"]
    assert "wrote film.png" in run(film, tmp_path, **env, **cache)
    assert (tmp_path / "film.png").stat().st_size > 0


@pytest.mark.slow
def test_the_installed_play_serves_its_page(installed, tmp_path):
    """Until the page's address is printed; how the page works is tested elsewhere."""
    _, _, venv = installed
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    env |= {
        "JAX_PLATFORMS": "cpu",
        "PYTHONUNBUFFERED": "1",
        "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".cache" / "jax"),
    }
    process = subprocess.Popen(
        [str(venv / "bin" / "homing"), "play", "point_u_maze"],
        cwd=tmp_path,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        said = ""
        while "http://" not in said and (line := process.stdout.readline()):
            said += line
        assert "http://127.0.0.1" in said, said
    finally:
        process.terminate()
        process.wait(60)
