"""Pictures and films."""

import imageio.v3 as iio
import jax.numpy as jnp
import numpy as np
import pytest

import homing
from homing.cli import main
from homing.viz import render


@pytest.fixture(scope="module")
def film():
    env = homing.make("point_u_maze", num_envs=1)
    return env, render.record(env, render.zero_policy(env), 4, seed=1)


def greenish(picture):
    """Pixels in the goal's colour."""
    r, g, b = (picture[..., k].astype(int) for k in range(3))
    return (g > r + 40) & (g > b + 25)


def test_the_goal_is_in_the_picture_and_moves_with_the_goal(film):
    env, shots = film
    here = render.draw(env, shots, 160, 120)[-1]
    assert here.shape == (120, 160, 3)
    assert greenish(here).sum() > 20
    other = np.array([4.0, 12.0]) if shots.goal[0, 0] > 8 else np.array([12.0, 4.0])
    moved = render.Film(shots.pos, shots.rot, np.tile(other, (5, 1)), shots.distance, shots.success)
    there = render.draw(env, moved, 160, 120)[-1]
    assert (greenish(here) & greenish(there)).sum() < 0.5 * greenish(here).sum()


def test_the_robot_is_drawn_where_its_links_are(film):
    env, shots = film
    at = shots.pos + np.array([0.0, 4.0, 0.0])
    shifted = render.Film(at, shots.rot, shots.goal, shots.distance, shots.success)
    a, b = (render.draw(env, f, 160, 120)[0].astype(int) for f in (shots, shifted))
    assert (np.abs(a - b).sum(-1) > 30).sum() > 20


def test_a_step_that_reaches_a_goal_shows_that_goal_before_the_next_one():
    options = {"goals.renew": "reached", "task.within": 4.5}
    env = homing.make("point_u_maze", num_envs=1, options=options)
    still = render.zero_policy(env)
    shoot = render.recorder(env, lambda learner, obs, key: still(obs, key), 3)
    film = next(film for film in (shoot(None, seed) for seed in range(50)) if film.success[0])
    # The first step tells the environment that the goal is reached; the goal after it is farther away.
    assert film.success.tolist() == [1, 1, 0, 0]
    np.testing.assert_array_equal(film.goal[0], film.goal[1])
    assert (film.goal[1] != film.goal[2]).any() and film.distance[2] > 4.5


@pytest.mark.parametrize("ending", [".png", ".gif", ".mp4", ".webp"])
def test_files(tmp_path, ending, capsys):
    file = tmp_path / f"film{ending}"
    main.main(
        ["render", "point_u_maze", "--out", str(file), "--steps", "4", "--width", "96", "--height", "64"]
    )
    assert str(file) in capsys.readouterr().out
    frames = np.asarray(iio.imread(file, **({"index": ...} if ending == ".webp" else {})))
    assert frames.shape[-3:-1] == (64, 96)
    if ending != ".png":
        assert len(frames) == 5


def test_every_environment_has_a_picture():
    """Models are dressed and compiled for drawing without an error, also those with several goals."""
    for id in homing.env_ids():
        spec = homing.envs.get_spec(id)
        size = len(spec.task.goal)
        markers = render.goal_markers(spec, np.arange(size, dtype=float))
        assert len(markers) >= spec.task.parts
        render.display_model(spec).compile()


def test_a_new_goal_begins_a_new_chunk_in_a_film():
    env = homing.make("point_u_maze", num_envs=1, options={"goals.renew": 3})
    films = []
    for chunk in (1, 8):
        towards = lambda obs, key, chunk=chunk: jnp.tile(obs.goal / 20 - 0.4, (1, chunk))
        films.append(render.record(env, towards, 20, seed=1, chunk=chunk))
    np.testing.assert_array_equal(*(film.pos for film in films))
    assert len(np.unique(films[0].goal, axis=0)) > 3
