"""README and the site's home: the order of things, and numbers that come from files in results/."""

import re
from pathlib import Path

import pytest
import yaml
from PIL import Image

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
HOME = (ROOT / "docs" / "index.md").read_text()
FILM = ROOT / "docs" / "images" / "film.webp"
GENERATED = re.compile(r"<!-- begin (\w+): tools/make_numbers.py -->.*?<!-- end \1 -->", re.S)


@pytest.fixture(scope="module")
def numbers():
    import make_numbers

    return make_numbers


# Numbers.


@pytest.mark.parametrize("page", ["README.md", "docs/index.md", "docs/see.md"])
def test_numbers_are_those_of_the_files(numbers, page):
    assert numbers.updated(page) == (ROOT / page).read_text(), "run `python tools/make_numbers.py`"


def test_every_name_in_the_texts_is_measured(numbers):
    wanted = set(re.findall(r"\{(\w+)\}", numbers.TEXTS.read_text().partition("# headline")[2]))
    assert wanted == set(numbers.facts()) | {"results"}


@pytest.mark.parametrize("text", [README, HOME], ids=["README", "home"])
def test_no_number_is_written_by_hand(text):
    by_hand = GENERATED.sub("", text)
    assert not re.findall(r"\d+(?:\.\d+)? ?%|\d ?[kM] steps|steps/s|\d+ ?×|\d times", by_hand)


def test_the_comparison_is_what_a_person_would_compute(numbers):
    """By hand, from the rows of the files."""
    told = numbers.facts()
    assert told["original_speed"] == "99 k"  # 99 317 and 98 966 steps/s
    assert told["ten_seeds"] == "1.29 M" and told["times"] == "13"  # 1 285 985 / 99 141
    assert told["best_success"] == "99.8 %" and told["original_fourth"] == "70 %"
    assert told["times_float32"] == "10"  # 974 325 / 99 141
    assert told["ten_seeds_float32"] == "974 k" and told["paper_seconds"] == "449"


def test_means_are_over_seeds_and_evaluations(numbers):
    rows = [{"seed": s, "step": 1e7 + t, "x": 10 * s + t} for s in (1, 2) for t in (0, 1)]
    assert numbers.in_window([*rows, {"seed": 3, "step": 5e7, "x": 1e9}], "x") == (15.5, 2)


@pytest.mark.parametrize(
    ("value", "shown"), [(99_141, "99 k"), (1_285_985, "1.29 M"), (1_200_686, "1.20 M"), (16.21e6, "16.2 M")]
)
def test_counts_as_people_write_them(numbers, value, shown):
    assert numbers._count(value) == shown


def test_every_result_file_is_described():
    """Each has a line that says what it is and which command makes it."""
    text = (ROOT / "results" / "README.md").read_text()
    files = {p.relative_to(ROOT / "results").as_posix() for p in (ROOT / "results").rglob("*.*")}
    pictures_of_studies = {name for name in files if name.startswith("studies/") and name.endswith(".png")}
    assert not {name for name in files - pictures_of_studies if f"`{name}`" not in text} - {"README.md"}


# The order of things.


def test_the_order_of_the_readme():
    order = [
        "# Homing",
        "Goal-conditioned reinforcement learning in JAX:",
        "docs/images/film.webp",
        "<!-- begin headline",
        "\npip install .",
        "\nhoming train best ant",
        "```python",
        "## What is here",
        "## Results",
        "## Links",
        "@inproceedings",
    ]
    places = [README.index(part) for part in order]
    assert places == sorted(places)


@pytest.mark.parametrize("text", [README, HOME], ids=["README", "home"])
def test_two_commands_and_five_lines_of_python(text):
    commands, code = re.findall(r"```(?:bash|python)\n(.*?)```", text, re.S)[:2]
    lines = commands.strip().splitlines()
    assert len(lines) == 2 and lines[0].startswith("pip install") and lines[1].startswith("homing train best")
    assert len([line for line in code.splitlines() if line.strip()]) == 5  # run by tests/test_docs_code.py


def test_the_film_is_short_and_small():
    assert FILM.stat().st_size <= 2_000_000
    with Image.open(FILM) as film:
        seconds = 0.0
        for k in range(film.n_frames):
            film.seek(k)
            film.load()
            seconds += film.info["duration"] / 1000
    assert 8 <= seconds <= 12


def test_the_original_and_its_paper_are_named_and_cited():
    for link in ("https://github.com/MichalBortkiewicz/JaxGCRL", "https://arxiv.org/abs/2408.11052"):
        assert f"]({link})" in README
    (reference,) = yaml.safe_load((ROOT / "CITATION.cff").read_text())["references"]
    assert re.sub(r"[{}]", "", README).count(reference["title"]) >= 2
    assert str(reference["year"]) in README and reference["url"] in README


def test_the_table_of_environments_is_on_its_own_page():
    assert "| id | body" not in HOME and "environments.md" in HOME
    assert "| id | body" in (ROOT / "docs" / "environments.md").read_text()


# Coming from JaxGCRL.

MAP = (ROOT / "docs" / "coming-from-jaxgcrl.md").read_text()
# The ids of its release 0.2.8, without the arms.
THEIRS = [
    *("ant", "ant_random_start", "ant_ball", "ant_push", "humanoid", "reacher", "cheetah"),
    *("pusher_easy", "pusher_hard", "pusher_reacher", "pusher2"),
    *(f"{body}_{maze}_maze" for body in ("ant", "humanoid", "simple") for maze in ("u", "big", "hardest")),
]


def section(title: str) -> list[list[str]]:
    """The cells of the table under a heading, without its head."""
    text = re.search(rf"^## {title}\n(.*?)(?=^## )", MAP, re.M | re.S)[1]
    rows = [line.strip("|").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def test_every_flag_that_is_named_as_ours_exists():
    from homing.cli.train import all_flags

    known = {f"--{name}" for name in all_flags()}
    named = {
        flag
        for row in section("Flags")
        for cell in row[1:]
        for flag in re.findall(r"--[a-z][\w.-]*[a-z]", cell)
    }
    assert len(named) > 30 and not named - known


def test_every_id_of_the_original_works_here():
    from homing.envs import ALIASES, env_ids

    assert all(id in env_ids() or id in ALIASES for id in THEIRS)
    ours = {id for row in section("Environments") for id in re.findall(r"`(\w+)`", row[1])}
    assert ours <= set(env_ids())


def test_every_metric_that_is_named_as_ours_is_in_the_glossary():
    glossary = (ROOT / "docs" / "glossary.md").read_text()
    ours = {name for row in section("Metrics") for name in re.findall(r"`(\w+/\w+)`", row[1])}
    assert len(ours) > 7 and not [name for name in ours if f"`{name}`" not in glossary]
    same = re.findall(r"`(?:training/)?(\w+)`", section("Metrics")[-1][0])
    assert not [name for name in same if f"`train/{name}`" not in glossary]


def test_every_defect_that_is_named_is_explained():
    text = "".join(
        path.read_text() for path in (ROOT / "docs").rglob("*.md") if path.stem != "coming-from-jaxgcrl"
    )
    text += (ROOT / "tests" / "envs" / "test_defects.py").read_text()
    assert len(set(re.findall(r"\b[EA]\d+\b", MAP))) > 15
    assert not [n for n in set(re.findall(r"\bE\d+\b", MAP)) if not re.search(rf"\b{n}\b", text)]
