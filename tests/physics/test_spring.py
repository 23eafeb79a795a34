"""The spring engine against the law that it follows: brax's pipeline, and MJX's contacts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from brax_reference import MANY, RECORDED, asking, compiled, live, pair, reading, recorded
from mujoco.mjx._src import collision_convex, collision_driver, collision_types, mesh

from homing import physics
from homing.envs import scene
from homing.envs.registry import env_ids, get_spec
from homing.errors import ConfigError
from homing.physics import brax_pipelines
from homing.physics.spring import contacts
from homing.physics.spring.contacts import Capsule, Sphere, geom_pairs
from homing.physics.spring.engine import Spring, SpringState
from homing.physics.vectors import Bodies, matrix

HALF = (2.0, 2.0, 1.0)  # of the maze walls


def _state(motion, *index: int) -> SpringState:
    """The same motion as a state of brax's."""
    parts = (motion[part][index] for part in ("pos", "rot", "vel", "ang"))
    bodies = Bodies(*(tuple(part[..., i] for i in range(part.shape[-1])) for part in parts))
    return SpringState(motion["q"][index], motion["qd"][index], bodies)


def _aligned(rot, to):
    """Quaternions [..., 4] with the sign that is nearer to `to`: both signs are the same turn."""
    rot, to = np.asarray(rot), np.asarray(to)
    return rot * np.where(np.sum(rot * to, axis=-1, keepdims=True) < 0, np.float32(-1), np.float32(1))


def _differences(one, other) -> np.ndarray:
    """The greatest difference in each environment."""
    leaves = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    apart = [np.abs(np.asarray(a) - np.asarray(b)) for a, b in leaves]
    return np.max([difference.reshape(MANY, -1).max(axis=1) for difference in apart], axis=0)


def _same_step(engines, before: SpringState, after: SpringState, ctrl) -> np.ndarray:
    """How far one frame of our engine from the same state leads apart."""
    return _differences(engines.step_own(before, ctrl).bodies, after.bodies)


@pytest.mark.parametrize(("id", "brax"), asking("started", ["ant_soccer_u_maze", "humanoid", "reacher"]))
def test_start_and_reading(id, brax):
    engines, theirs = pair(id), dict(brax("started", id))
    own = engines.init_own(theirs["q"], theirs["qd"])
    found = jax.jit(reading(engines.own))(own, engines.controls(1))
    theirs["rot"] = theirs["links' rot"] = _aligned(theirs["links' rot"], found["links' rot"])
    assert _differences(own.bodies, _state(theirs).bodies).max() < 5e-6
    np.testing.assert_allclose(found.pop("torques"), theirs["torques"], rtol=1e-6)
    for name in found:
        assert _differences(found[name], theirs[name]).max() < 2e-5, name


@pytest.mark.parametrize(
    ("id", "brax"),
    asking("frames", ["ant", "ant_soccer_u_maze", "reacher", "point_u_maze", "humanoid"], slow=("humanoid",)),
)
def test_frames_from_the_same_state(id, brax):
    engines, theirs = pair(id), brax("frames", id)
    for k, ctrl in enumerate(engines.controls(3, 12)):
        assert _same_step(engines, _state(theirs, k), _state(theirs, k + 1), ctrl).max() < 3e-5


@pytest.mark.parametrize(
    ("id", "brax"), asking("frames_in_walls", ["ant_soccer_u_maze", "ant_big_maze"], slow=("ant_big_maze",))
)
def test_frames_in_walls(id, brax):
    engines, theirs = pair(id), brax("frames_in_walls", id)
    ctrl = engines.controls(4)
    for k in range(10):
        # Tens of metres from the origin stiff springs make more of how float32 rounds positions.
        assert _same_step(engines, _state(theirs, k, 0), _state(theirs, k, 1), ctrl).max() < 2e-4
    jumps = np.abs(np.diff(theirs["vel"], axis=1)).max(axis=(1, 3, 4))
    assert np.sum(jumps > 1.0) > 60


@pytest.mark.parametrize(
    ("id", "brax"),
    asking("trajectory", ["ant", "humanoid", "reacher", "point_u_maze"], slow=("humanoid",)),
)
def test_trajectories(id, brax):
    """Fifty environment steps; environments may part where a touch hangs by a hair, most must not."""
    engines, theirs = pair(id), brax("trajectory", id)
    own = engines.init_own(theirs["q"], theirs["qd"])
    places = jax.jit(lambda state: engines.own.links(state).pos)
    apart = np.zeros(MANY)
    for ctrl, links in zip(engines.controls(7, 50), theirs["links"], strict=True):
        for _ in range(engines.frames):
            own = engines.step_own(own, ctrl)
        apart = np.maximum(apart, _differences(places(own), links))
    assert np.median(apart) < 3e-5
    assert np.mean(apart < 1e-4) > 0.8


@pytest.mark.parametrize(("id", "brax"), asking("one_frame", ["ant", "humanoid"]))
def test_coordinates_follow_the_links(id, brax):
    """Joint angles are brax's; near zero its second ones are rough, as it takes them from a cosine."""
    engines, theirs = pair(id), brax("one_frame", id)
    own = engines.step_own(_state(theirs, 0), engines.controls(9))
    assert _differences(own.qd, theirs["qd"][1]).max() < 3e-5
    assert _differences(own.q, theirs["q"][1]).max() < (1e-6 if id == "ant" else 1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("question", "name"), RECORDED)
def test_the_file_says_what_brax_gives(question, name):
    said, given = recorded(question, name), live(question, name)
    assert said.keys() == given.keys()
    for part in said:
        np.testing.assert_allclose(said[part], given[part], atol=5e-4 if part == "q" else 1e-4, rtol=1e-4)


def test_environments_and_seeds():
    """A step of many environments is that of each; so it is under vmap over seeds."""
    engines = pair("ant")
    q, qd = engines.starts(10)
    ctrl = engines.controls(11)
    # One program on both sides: two are fused, and so rounded, in another way.
    step = lambda q, qd, ctrl: engines.own.step(engines.own.init(q, qd), ctrl)
    together = jax.jit(step)(q, qd, ctrl)
    by_seed = lambda x: x.reshape(3, MANY // 3, *x.shape[1:])
    apart = jax.jit(jax.vmap(step))(by_seed(q), by_seed(qd), by_seed(ctrl))
    for a, b in zip(jax.tree.leaves(together), jax.tree.leaves(apart), strict=True):
        np.testing.assert_allclose(by_seed(np.asarray(a)), b, atol=2e-6)


@pytest.mark.parametrize("id", ["ant_big_maze", "ant_soccer_u_maze", "humanoid_u_maze", "pusher_two"])
def test_pairs_are_those_of_mjx(id):
    model, _, _ = compiled(id)
    own = sorted(geom_pairs(model))
    assert own == sorted((int(a), int(b)) for a, b, _ in collision_driver.geom_pairs(model))
    assert len(own) == len(set(own)) > 0


def test_every_environment_on_springs_is_supported():
    for id in env_ids():
        if "spring" in get_spec(id).pipelines():
            assert Spring.supports(compiled(id)[0]) is None, id


def test_other_models_are_refused_and_run_on_brax():
    def load(id: str, pipeline: str):
        return physics.load(scene.build_model(get_spec(id)), pipeline, physics.Timing(0.005, 1))

    assert "combination" in Spring.supports(scene.build_model(get_spec("ant_push")).compile())
    with pytest.raises(ConfigError, match=r"joints of body 10 are not a supported combination.*spring_brax"):
        load("ant_push", "spring")
    assert type(load("ant_push", "spring_brax")) is brax_pipelines.Spring
    assert type(load("ant", "spring")) is Spring


# -- shapes against a box ---------------------------------------------------------------------------------


def _round_a_box(count: int):
    """Points near the faces of a box at the origin, and turns."""
    rng = np.random.default_rng(0)
    pos = rng.uniform(-1, 1, (count, 3)) * (np.array(HALF) + 0.35)
    axis = rng.integers(0, 3, count)
    each = np.arange(count)
    pos[each, axis] = np.sign(pos[each, axis]) * (np.array(HALF)[axis] + rng.uniform(-0.35, 0.35, count))
    turn = rng.normal(size=(count, 4))
    turn /= np.linalg.norm(turn, axis=1, keepdims=True)
    mat = np.stack([np.stack(column, -1) for column in matrix(tuple(turn.T))], -1)
    return pos.astype(np.float32), mat.astype(np.float32)


def _by_mjx(find, size, pos, mat):
    @jax.jit
    def run(pos, mat):
        box = mesh.box(collision_types.GeomInfo(jnp.zeros((1, 3)), jnp.eye(3)[None], jnp.array([HALF])))
        box = box.replace(**{part: getattr(box, part)[0] for part in ("pos", "mat", "size", "vert", "face")})
        one = lambda pos, mat: find(collision_types.GeomInfo(pos, mat, jnp.array(size)), box)
        return jax.vmap(one)(pos, mat)

    dist, place, normal = map(np.asarray, run(pos, mat))
    count = len(pos)
    return dist.reshape(count, -1), place.reshape(count, -1, 3), normal.reshape(count, -1, 3)


@pytest.mark.parametrize("shape", ["sphere", "capsule"])
def test_box_contacts_are_those_of_mjx(shape):
    size = {"sphere": (0.25, 0.0, 0.0), "capsule": (0.08, 0.1414, 0.0)}[shape]
    pos, mat = _round_a_box(20_000)
    centre, axis = tuple(pos.T), tuple(mat[:, :, 2].T)
    if shape == "sphere":
        find = lambda centre, axis: contacts.sphere_box(Sphere(centre, size[0]), (0.0,) * 3, HALF)
        dist, place, normal = _by_mjx(collision_convex._sphere_convex, size, pos, mat)
    else:
        find = lambda centre, axis: contacts.capsule_box(
            Capsule(centre, size[0], axis, size[1]), (0.0,) * 3, HALF
        )
        dist, place, normal = _by_mjx(collision_convex._capsule_convex, size, pos, mat)
    for k, own in enumerate(jax.device_get(jax.jit(find)(centre, axis))):
        touches = (own.dist < 0) | (dist[:, k] < 0)
        assert np.sum(touches) > 5_000
        off = np.stack(
            [
                np.abs(own.dist - dist[:, k]),
                np.abs(np.stack(own.pos, -1) - place[:, k]).max(axis=-1),
                np.abs(np.stack(own.normal, -1) - normal[:, k]).max(axis=-1),
            ]
        )[:, touches]
        # A nearest point a hair away has a direction that float32 cannot tell well.
        assert np.mean(off < 1e-5) > 0.995
        assert np.all(off[:2] < 1e-4)
        assert np.all(off[2] < 1e-2)


def test_boxes_below_the_floor_touch_nothing():
    pos, mat = _round_a_box(64)

    @jax.jit
    def find(centre, axis):
        shapes = Sphere(centre, 0.25), Capsule(centre, 0.08, axis, 0.14)
        return [
            touching(shape, (0.0, 0.0, -100.0), HALF)
            for touching, shape in zip((contacts.sphere_box, contacts.capsule_box), shapes, strict=True)
        ]

    spheres, capsules = find(tuple(pos.T), tuple(mat[:, :, 2].T))
    assert len(spheres) and len(capsules)
    assert all(np.all(np.asarray(contact.dist) > 0) for contact in (*spheres, *capsules))
