"""Where arms reach: what is inside, and the nearest place to what is not."""

import numpy as np
import pytest

from homing.envs.bodies.panda import CUBE_REGION, HIGH, LOW, WRIST_REGION
from homing.envs.goal_space import GoalSpace
from homing.envs.regions import Reachable, _squares
from homing.envs.registry import get_spec


def places_of(region):
    """Places all over a region of the Panda, [K, 3]."""
    azimuth = np.linspace(*region.sector, 61)
    if region is WRIST_REGION:
        distance, height = _squares(region.sample).T
    else:
        distance, height = np.stack(
            np.meshgrid(np.linspace(region.least, region.radius, 60), np.linspace(*region.heights, 8)), -1
        ).T.reshape(2, -1)
    turned = distance[:, None, None] * np.stack([np.cos(azimuth), np.sin(azimuth)], axis=-1)
    tall = np.broadcast_to(height[:, None, None], (*turned.shape[:2], 1))
    return np.concatenate([turned, tall], axis=-1).reshape(-1, 3)


@pytest.mark.parametrize("region", [WRIST_REGION, CUBE_REGION], ids=["wrist", "cube"])
def test_the_nearest_place_is_the_nearest_of_all(region):
    """Also of points behind the arm, to the left and to the right."""
    places = places_of(region)
    points = np.random.default_rng(0).uniform((-0.9, -0.9, -0.1), (0.9, 0.9, 0.9), (60, 3))
    points = np.concatenate(
        [points, [(-0.6, -0.1, 0.4), (0.6, -0.1, 0.4), (0.0, -0.2, 0.4), (0.0, 0.0, 0.03)]]
    )
    for point in points[~region.inside(points.astype(np.float32))]:
        near = region.nearest(point)
        best = np.linalg.norm(places - point, axis=-1).min()
        assert np.linalg.norm(near - point) < best + 1e-3
        assert region.inside(near.astype(np.float32))


def test_a_cube_is_in_reach_where_the_hand_can_turn_to():
    angles = np.array([LOW[0] - 0.01, LOW[0] + 0.01, 1.5, HIGH[0] - 0.01, HIGH[0] + 0.01, -1.5])
    cubes = np.stack([0.6 * np.cos(angles), 0.6 * np.sin(angles), 0.03 + 0.0 * angles], axis=-1)
    np.testing.assert_array_equal(CUBE_REGION.inside(cubes), [False, True, True, True, False, False])


def test_a_goal_behind_the_arm_is_moved_to_the_side_it_is_on(caplog):
    reach, push = (GoalSpace(id, get_spec(id)) for id in ("arm_reach", "arm_push_easy"))
    assert reach.parse("-0.6,-0.1,0.4")[0] < -0.4
    assert reach.parse("0.6,-0.1,0.4")[0] > 0.4
    moved = push.parse("0.6,-0.1")
    np.testing.assert_allclose(np.arctan2(moved[1], moved[0]), LOW[0], atol=1e-6)
    assert len(caplog.records) == 3
    assert "at azimuths of 20 to 160°; using the nearest free point" in caplog.records[-1].getMessage()


def test_a_disc_is_all_round_and_has_no_hole():
    disc = Reachable(("x", "y"), (1.0, 2.0), 0.5)
    assert disc.words == "reaches 0.5 m from (1, 2)"
    np.testing.assert_allclose(disc.nearest(np.array([1.0, 2.0])), [1.0, 2.0])
    np.testing.assert_allclose(disc.nearest(np.array([-3.0, 2.0])), [0.5, 2.0])
