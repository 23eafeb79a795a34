"""Layouts of mazes against what the papers say of them."""

import re
from collections import deque

import pytest

from homing.envs.layouts import LAYOUTS


def grid(name):
    return [line.strip() for line in LAYOUTS[name].strip().splitlines()]


def path_lengths(name):
    """Cells from the start to every goal along the free cells."""
    rows = grid(name)
    cells = {(i, j): c for i, row in enumerate(rows) for j, c in enumerate(row)}
    (start,) = (at for at, c in cells.items() if c == "R")
    steps, queue = {start: 0}, deque([start])
    while queue:
        i, j = queue.popleft()
        for near in ((i + 1, j), (i - 1, j), (i, j + 1), (i, j - 1)):
            if cells[near] != "#" and near not in steps:
                steps[near] = steps[i, j] + 1
                queue.append(near)
    return sorted(steps[at] for at, c in cells.items() if c == "G")


def walls(name):
    return [re.sub(r"[^#]", ".", row) for row in grid(name)]


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts_are_closed_and_every_goal_can_be_reached(name):
    rows = grid(name)
    assert set(rows[0]) == set(rows[-1]) == {"#"} and {row[0] + row[-1] for row in rows} == {"##"}
    assert len(path_lengths(name)) == "".join(rows).count("G") > 0


@pytest.mark.parametrize(
    ("name", "count", "mean"),
    [("u", 6, 3.5), ("u4", 10, 5.5), ("u5", 16, 8.5), ("big", 25, 6.4), ("hardest", 45, 9.1)],
)
def test_goals_are_as_many_and_as_far_as_published(name, count, mean):
    lengths = path_lengths(name)
    assert len(lengths) == count
    assert sum(lengths) / count == pytest.approx(mean, abs=0.05)


@pytest.mark.parametrize(
    ("name", "count", "mean"),
    [
        ("u4_eval", 4, 8.5),
        ("u5_eval", 8, 12.5),
        ("big_eval", 10, None),
        ("big_eval_9", 9, 8.9),
        ("u_eval", 3, 5),
    ],
)
def test_evaluation_layouts_keep_the_far_goals(name, count, mean):
    lengths, base = path_lengths(name), name.partition("_eval")[0]
    assert len(lengths) == count
    if mean is not None:
        assert sum(lengths) / count == pytest.approx(mean, abs=0.05)
    assert walls(name) == walls(base)


@pytest.mark.parametrize("name", [name for name in LAYOUTS if "_path_" in name])
def test_goals_by_path_distance(name):
    base, _, span = name.partition("_path_")
    low, high = map(int, span.split("_"))
    assert path_lengths(name) == [n for n in path_lengths(base) if low <= n <= high]
    assert walls(name) == walls(base)
