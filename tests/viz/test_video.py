"""Films side by side, with labels, and the command that makes them."""

import imageio.v3 as iio
import numpy as np
import pytest
from policy_helpers import maze_policy  # noqa: F401

from homing.cli import main
from homing.errors import ConfigError
from homing.viz import render, video


@pytest.fixture(scope="module")
def panels(maze_policy):  # noqa: F811
    cast = video.actors([maze_policy], "all", "last")
    return video.recorded(cast, 6, 0, "4,8")


def test_seeds_start_alike_go_their_own_ways_and_have_the_goal_that_was_asked_for(panels):
    a, b = (panel.film for panel in panels)
    assert [panel.label[-6:] for panel in panels] == ["seed 3", "seed 4"]
    np.testing.assert_array_equal(a.pos[0], b.pos[0])
    assert not np.allclose(a.pos[-1], b.pos[-1])
    np.testing.assert_allclose(a.goal, np.tile([4.0, 8.0], (7, 1)))
    np.testing.assert_allclose(a.distance, np.linalg.norm(a.pos[:, 0, :2] - [4, 8], axis=-1), atol=1e-4)


def test_panels_stand_side_by_side_and_a_shorter_film_waits(panels):
    short = video.Panel("short", panels[0].env, render.moment(panels[0].film, 0))
    sheets = list(video.composed([panels[1], short], 96, 72, every=3))
    assert len(sheets) == 3
    assert sheets[0].shape == (72, 192, 3)
    # The film that waits stays as it is; the other goes on.
    np.testing.assert_array_equal(sheets[0][:, 96:], sheets[2][:, 96:])
    assert np.any(sheets[0][:, :96] != sheets[2][:, :96])


def test_what_is_written_on_a_frame_can_be_read():
    grey = np.full((120, 300, 3), 128, np.uint8)
    frame = video.inscribed(grey, "reacher", "1.0 s", video.REACHED)
    assert frame[3].min() < 90, "a dark strip"
    assert frame[:10].max() > 230, "with light letters"
    np.testing.assert_array_equal(frame[40:80], grey[40:80])
    long = video.inscribed(grey, "x" * 300, "", video.UNDERWAY)
    assert long[:12, -4:].max() < 90, "a long label is cut inside of the picture"


@pytest.mark.parametrize(
    ("count", "shape"), [(1, (1, 1)), (2, (2, 1)), (3, (3, 1)), (4, (2, 2)), (6, (3, 2)), (10, (5, 2))]
)
def test_grids_leave_no_holes(count, shape):
    assert video.grid_shape(count, 4 / 3) == shape


def test_the_moment_of_success_is_the_first(panels):
    film = panels[0].film
    reached = render.Film(film.pos, film.rot, film.goal, film.distance, np.array([0, 0, 0, 1, 0, 1, 1]))
    assert render.moment(reached).begin == 3
    assert render.moment(film, -1).begin == 6
    np.testing.assert_array_equal(render.moment(reached).pos[0], film.pos[3])


def test_too_many_panels_are_refused(maze_policy, monkeypatch):  # noqa: F811
    monkeypatch.setattr(video, "MOST_PANELS", 3)
    with pytest.raises(ConfigError, match="4 policies are too many"):
        video.actors([maze_policy] * 2, "all", "last")


def test_the_command_films_two_seeds(maze_policy, tmp_path, capsys):  # noqa: F811
    out = tmp_path / "two.mp4"
    size = ("--steps", "3", "--width", "96", "--height", "64")
    main.main(["render", maze_policy, "--seed", "3,4", "--goal", "4,8", "--out", str(out), *size])
    assert str(out) in capsys.readouterr().out
    frames = np.asarray(iio.imread(out))
    assert frames.shape == (4, 64, 192, 3)


def test_a_goal_in_a_wall_is_moved_for_all_seeds_with_one_line(maze_policy, caplog):  # noqa: F811
    cast = video.actors([maze_policy], "all", "last")
    panels = video.recorded(cast, 2, 0, "8,4")
    assert len(panels) == 2
    for panel in panels:
        assert not video.goal_space(panel.env).fault(panel.film.goal[-1])
    (line,) = [record.getMessage() for record in caplog.records if record.name.startswith("homing")]
    assert line.startswith("(8, 4) is inside a wall of point_u_maze; using the nearest free point, (")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("{policy}", "--goal", "8;4"), "not '8;4'"),
        (("{policy}", "--seed", "5"), "no seed 5; it has 3, 4"),
        (("{policy}", "--seed", "3,x"), "best, all or a number"),
        (("{policy}", "--physics", "mjx"), "a policy brings its environment"),
        (("{policy}", "--policy", "random"), "is none"),
        (("{policy}", "--paths", "--map", "goals"), "one at a time"),
        (("point_big_maze", "--map", "goals"), "show a trained policy"),
        (("point_u_maz",), "did you mean 'point_u_maze'"),
        (("point_big_maze", "{policy}"), "shown alone"),
        (("nowhere/run",), "does not exist"),
        (("{policy}", "--steps", "0"), "at least 1"),
    ],
)
def test_what_cannot_be_shown_is_one_message(maze_policy, tmp_path, capsys, args, words):  # noqa: F811
    with pytest.raises(SystemExit) as end:
        main.main(
            ["render", *(arg.format(policy=maze_policy) for arg in args), "--out", str(tmp_path / "a.png")]
        )
    assert end.value.code == 2
    assert words in " ".join(capsys.readouterr().err.split())
    assert not list(tmp_path.iterdir())


def test_wrong_endings_are_refused(maze_policy, tmp_path, capsys):  # noqa: F811
    for args, words in (((), ".png, .gif, .mp4, .webp"), (("--paths",), ".png, .pdf, .svg")):
        with pytest.raises(SystemExit):
            main.main(["render", maze_policy, *args, "--out", str(tmp_path / "a.avi")])
        assert words in capsys.readouterr().err
