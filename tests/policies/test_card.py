"""Cards: what clicks on the page reach stands on them, beside what is stricter."""

import json
import shutil

import pytest
from policy_helpers import maze_policy  # noqa: F401

from homing.cli.main import main
from homing.errors import HomingError
from homing.play.pages import _numbers
from homing.policies.card import check_card, exported, on_page, with_page
from homing.policies.card_page import markdown
from homing.policies.export import change_card
from homing.policies.store import read_card
from homing.runs.strict_json import open_plain
from homing.runs.tensors import TensorFile
from homing.version import __version__

ROWS = [{"seed": 3, "reached": 0.9, "falls": 0}, {"seed": 4, "reached": 0.96, "falls": 2}]
RESULTS = {"by": "clicks", "env": "walk", "chains": 20, "length": 5, "seconds": 60.0, "scores": ROWS}
CARD = {"scores": [{"seed": 3, "success_any": 0.7}]}
CHAIN = {"length": 5, "scores": [{"seed": 3, "reached": 0.5}]}


@pytest.fixture
def file(maze_policy, tmp_path):  # noqa: F811
    path = tmp_path / "maze.safetensors"
    shutil.copyfile(maze_policy, path)
    return path


def test_a_card_has_what_is_reached_on_the_page_and_when():
    page = with_page(CARD, RESULTS)["page"]
    assert page["homing"] == __version__ and page["date"].count("-") == 2
    assert page | RESULTS == page
    assert "page" not in CARD


def test_an_export_of_one_seed_has_the_scores_of_that_one():
    card = exported({**with_page(CARD, RESULTS), "chain": CHAIN}, [4], "as asked for")
    assert card["scores"] == card["chain"]["scores"] == []
    assert card["page"]["scores"] == ROWS[1:]
    assert "page" not in exported(CARD, [3], "all")


def test_a_person_expects_the_best_seed_or_the_one_that_acts():
    card = with_page(CARD, RESULTS)
    assert on_page(card) == (0.96, "of goals reached on the page, in chains of 5; a fallen robot gets up")
    assert on_page(card, 3) == (0.9, "of goals reached on the page, in chains of 5"), "none fell"
    assert on_page(card, 5) is None and on_page(CARD) is None


def test_the_gallery_has_both_numbers():
    shown = _numbers(with_page({**CARD, "chain": CHAIN}, RESULTS))
    assert shown.startswith("<b>96 %</b> of goals reached on the page") and "50 % where a fall ends" in shown
    assert "50 %</b> of goals reached, in chains of 5" in _numbers({**CARD, "chain": CHAIN})
    assert "fall ends" not in _numbers(with_page(CARD, RESULTS))


def test_the_page_of_a_card_names_both_numbers():
    text = markdown("walk", with_page({**CARD, "chain": CHAIN}, RESULTS), 1)
    page = text.index(
        "**Goals reached on the page, in chains of 5; a fallen robot gets up.** 20 chains in `walk`, 60 s"
    )
    assert page < text.index("| reached | 0.9 | 0.96 |") < text.index("**Stricter: a fall ends a chain.**")
    assert "Stricter" not in markdown("walk", {**CARD, "chain": CHAIN}, 1)


def test_the_page_of_a_card_names_rewards_and_what_the_run_started_with():
    config = {"reward": "dense", "init_from": "walker", "episode_length": 1000, "env": "walk"}
    text = markdown("walk", {**CARD, "changed": {"lr": 0.1}, "config": config}, 1)
    assert "| changed settings | `lr` 0.1, `reward` dense, `init_from` walker |" in text
    plain = {"reward": "sparse", "init_from": None, "episode_length": 200}
    text = markdown("walk", {**CARD, "changed": {"lr": 0.1}, "config": plain}, 1)
    assert "| changed settings | `lr` 0.1, `episode_length` 200 |" in text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"chains": -1}, "page"),
        ({"seconds": "long"}, "page"),
        ({"scores": [{"reached": 0.5}]}, "scores without a seed"),
    ],
)
def test_a_wrong_measurement_is_refused(change, words):
    with pytest.raises(HomingError, match=words):
        check_card({**CARD, "page": {**RESULTS, **change}})


def test_a_card_is_changed_and_all_else_in_its_file_stays(file):
    def parts():
        with open_plain(file) as opened:
            found = TensorFile(file, opened).verified()
            return {name: x.tobytes() for name, x in found.arrays().items()}, dict(found.content or {})

    arrays, content = parts()
    change_card(file, lambda card: with_page(card, RESULTS))
    after, changed = parts()
    assert after == arrays
    assert changed["card"].pop("page")["scores"] == ROWS
    assert changed == content
    assert [entry.name for entry in file.parent.iterdir()] == [file.name], "no draft is left"


def test_a_file_is_as_it_was_where_its_new_card_is_wrong(file):
    before = file.read_bytes()
    with pytest.raises(HomingError, match="page"):
        change_card(file, lambda card: {**card, "page": 1})
    assert file.read_bytes() == before
    file.write_bytes(before[:-4])
    with pytest.raises(HomingError, match="damaged"):
        change_card(file, lambda card: with_page(card, RESULTS))
    assert file.read_bytes() == before[:-4]


def test_the_command_shows_the_card_with_both(file, capsys):
    change_card(file, lambda card: with_page({**card, "chain": CHAIN}, RESULTS))
    main(["policies", str(file)])
    shown = " ".join(capsys.readouterr().out.split())
    assert "Goals reached on the page" in shown and "Stricter: a fall ends a chain." in shown
    main(["policies", str(file), "--json"])
    assert json.loads(capsys.readouterr().out)["page"] == read_card(file)["page"]
