"""The spring engine against the law that it follows: brax's pipeline, and MJX's contacts."""

import dataclasses
from functools import cache

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
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

NUM_ENVS = 18
HALF = (2.0, 2.0, 1.0)  # of the maze walls


def _compiled(id: str) -> tuple[mujoco.MjModel, physics.Timing, tuple]:
    spec = get_spec(id)
    model, timing = scene.build_model(spec), spec.body.pipelines["spring"]
    model.set_option(timestep=timing.timestep)
    if timing.gears is not None:
        model.set_gear(timing.gears)
    return model.compile(), timing, spec.arena.windows(scene.followed(spec))


class Pair:
    """Both engines for one environment, stepping one physics frame at a time."""

    def __init__(self, id: str):
        model, timing, windows = _compiled(id)
        self.spec, self.frames = get_spec(id), timing.frames
        single = dataclasses.replace(timing, frames=1)
        self.own, self.brax = Spring(model, single, windows), brax_pipelines.Spring(model, single, windows)
        self.step_own, self.step_brax = jax.jit(self.own.step), jax.jit(self.brax.step)
        self.init_own, self.init_brax = jax.jit(self.own.init), jax.jit(self.brax.init)
        self.links_own = jax.jit(self.own.links)
        self.sample_resets = jax.jit(jax.vmap(scene.Scene(self.spec, "spring").sample_reset))

    def starts(self, key, spread: float = 0.0):
        """Starts of episodes, with velocities of the size `spread` added."""
        k_reset, k_speed = jax.random.split(key)
        q, qd, _ = self.sample_resets(jax.random.split(k_reset, NUM_ENVS))
        return q, qd + spread * jax.random.normal(k_speed, qd.shape)

    def actions(self, key):
        return jax.random.uniform(key, (NUM_ENVS, self.own.layout.act_size), jnp.float32, -1.0, 1.0)


pair = cache(Pair)


def _bodies(state: brax_pipelines.SpringState) -> Bodies:
    """The same motion as brax's state."""
    parts = map(np.asarray, (state.x_i.pos, state.x_i.rot, state.xd_i.vel, state.xd_i.ang))
    return Bodies(*(tuple(part[..., i] for i in range(part.shape[-1])) for part in parts))


def _aligned(rot, to):
    """Quaternions [..., 4] with the sign that is nearer to `to`: both signs are the same turn."""
    rot, to = np.asarray(rot), np.asarray(to)
    return rot * np.where(np.sum(rot * to, axis=-1, keepdims=True) < 0, np.float32(-1), np.float32(1))


def _differences(one, other) -> np.ndarray:
    """The greatest difference in each environment."""
    leaves = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    apart = [np.abs(np.asarray(a) - np.asarray(b)) for a, b in leaves]
    return np.max([difference.reshape(NUM_ENVS, -1).max(axis=1) for difference in apart], axis=0)


def _same_step(engines: Pair, state, ctrl) -> np.ndarray:
    """How far one frame of each engine from the same state leads apart."""
    own = engines.step_own(SpringState(state.q, state.qd, _bodies(state)), ctrl)
    return _differences(_bodies(engines.step_brax(state, ctrl)), own.bodies)


def _into_walls(engines: Pair, key):
    """Poses in and round walls: faces, edges and corners."""
    k_start, k_wall, k_offset, k_height, k_turn = jax.random.split(key, 5)
    q, qd = engines.starts(k_start, spread=2.0)
    arena = engines.spec.arena
    walls = jnp.asarray(np.argwhere(arena.wall_cells) * arena.cell, jnp.float32)
    wall = jax.random.choice(k_wall, walls, (NUM_ENVS,))
    offset = jax.random.uniform(k_offset, (NUM_ENVS, 2), jnp.float32, -0.7, 0.7) * arena.cell
    q = q.at[:, :2].set(wall + offset)
    if engines.own.joints.types[0] == "f":
        turn = jax.random.normal(k_turn, (NUM_ENVS, 4))
        q = q.at[:, 2].set(jax.random.uniform(k_height, (NUM_ENVS,), jnp.float32, 0.1, 2.3))
        q = q.at[:, 3:7].set(turn / jnp.linalg.norm(turn, axis=-1, keepdims=True))
    return q, qd


@pytest.mark.parametrize("id", ["ant_soccer_u_maze", "humanoid", "reacher"])
def test_start_and_reading(id):
    engines = pair(id)
    q, qd = engines.starts(jax.random.key(0), spread=0.5)
    ctrl = engines.actions(jax.random.key(1))
    own, brax = engines.init_own(q, qd), engines.init_brax(q, qd)
    rot = _aligned(brax.x.rot, engines.links_own(own).rot)
    brax = brax.replace(x=brax.x.replace(rot=rot), x_i=brax.x_i.replace(rot=rot))
    assert _differences(own.bodies, _bodies(brax)).max() < 5e-6
    reads = ("q", "qd", "links", "mass_features")
    found, expected = (
        jax.jit(lambda state, engine=engine: [getattr(engine, read)(state) for read in reads])(state)
        for engine, state in ((engines.own, own), (engines.brax, brax))
    )
    for ours, theirs in zip(found, expected, strict=True):
        assert _differences(ours, theirs).max() < 2e-5
    np.testing.assert_allclose(engines.own.torques(own, ctrl), engines.brax.torques(brax, ctrl), rtol=1e-6)


@pytest.mark.parametrize(
    "id",
    ["ant", "ant_soccer_u_maze", "reacher", "point_u_maze", pytest.param("humanoid", marks=pytest.mark.slow)],
)
def test_frames_from_the_same_state(id):
    engines = pair(id)
    state = engines.init_brax(*engines.starts(jax.random.key(2), spread=1.0))
    for k_frame in jax.random.split(jax.random.key(3), 12):
        ctrl = engines.actions(k_frame)
        assert _same_step(engines, state, ctrl).max() < 3e-5
        state = engines.step_brax(state, ctrl)


@pytest.mark.parametrize("id", ["ant_soccer_u_maze", pytest.param("ant_big_maze", marks=pytest.mark.slow)])
def test_frames_in_walls(id):
    engines = pair(id)
    ctrl = engines.actions(jax.random.key(4))
    moved = 0
    for k_pose in jax.random.split(jax.random.key(5), 10):
        state = engines.init_brax(*_into_walls(engines, k_pose))
        # Tens of metres from the origin stiff springs make more of how float32 rounds positions.
        assert _same_step(engines, state, ctrl).max() < 2e-4
        jump = engines.step_brax(state, ctrl).xd_i.vel - state.xd_i.vel
        moved += np.sum(np.abs(np.asarray(jump)).max(axis=(1, 2)) > 1.0)
    assert moved > 60


@pytest.mark.parametrize(
    "id", ["ant", pytest.param("humanoid", marks=pytest.mark.slow), "reacher", "point_u_maze"]
)
def test_trajectories(id):
    """Fifty environment steps; environments may part where a touch hangs by a hair, most must not."""
    engines = pair(id)
    q, qd = engines.starts(jax.random.key(6))
    own, brax = engines.init_own(q, qd), engines.init_brax(q, qd)
    apart = np.zeros(NUM_ENVS)
    for k_action in jax.random.split(jax.random.key(7), 50):
        ctrl = engines.actions(k_action)
        for _ in range(engines.frames):
            own, brax = engines.step_own(own, ctrl), engines.step_brax(brax, ctrl)
        apart = np.maximum(apart, _differences(engines.links_own(own).pos, brax.x.pos))
    assert np.median(apart) < 3e-5
    assert np.mean(apart < 1e-4) > 0.8


def test_coordinates_follow_the_links():
    """Joint angles are brax's; near zero its second ones are rough, as it takes them from a cosine."""
    for id in ("ant", "humanoid"):
        engines = pair(id)
        brax = engines.init_brax(*engines.starts(jax.random.key(8), spread=1.0))
        ctrl = engines.actions(jax.random.key(9))
        own = engines.step_own(SpringState(brax.q, brax.qd, _bodies(brax)), ctrl)
        brax = engines.step_brax(brax, ctrl)
        assert _differences(own.qd, brax.qd).max() < 3e-5
        assert _differences(own.q, brax.q).max() < (1e-6 if id == "ant" else 1e-3)


def test_environments_and_seeds():
    """A step of many environments is that of each; so it is under vmap over seeds."""
    engines = pair("ant")
    q, qd = engines.starts(jax.random.key(10))
    ctrl = engines.actions(jax.random.key(11))
    # One program on both sides: two are fused, and so rounded, in another way.
    step = lambda q, qd, ctrl: engines.own.step(engines.own.init(q, qd), ctrl)
    together = jax.jit(step)(q, qd, ctrl)
    by_seed = lambda x: x.reshape(3, NUM_ENVS // 3, *x.shape[1:])
    apart = jax.jit(jax.vmap(step))(by_seed(q), by_seed(qd), by_seed(ctrl))
    for a, b in zip(jax.tree.leaves(together), jax.tree.leaves(apart), strict=True):
        np.testing.assert_allclose(by_seed(a), b, atol=2e-6)


@pytest.mark.parametrize("id", ["ant_big_maze", "ant_soccer_u_maze", "humanoid_u_maze", "pusher_two"])
def test_pairs_are_those_of_mjx(id):
    model, _, _ = _compiled(id)
    own = sorted(geom_pairs(model))
    assert own == sorted((int(a), int(b)) for a, b, _ in collision_driver.geom_pairs(model))
    assert len(own) == len(set(own)) > 0


def test_every_environment_on_springs_is_supported():
    for id in env_ids():
        if "spring" in get_spec(id).pipelines():
            assert Spring.supports(_compiled(id)[0]) is None, id


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
    return jnp.asarray(pos, jnp.float32), jnp.asarray(mat, jnp.float32)


def _by_mjx(find, size, pos, mat):
    box = mesh.box(collision_types.GeomInfo(jnp.zeros((1, 3)), jnp.eye(3)[None], jnp.array([HALF])))
    box = box.replace(pos=box.pos[0], mat=box.mat[0], size=box.size[0], vert=box.vert[0], face=box.face[0])
    one = lambda pos, mat: find(collision_types.GeomInfo(pos, mat, jnp.array(size)), box)
    dist, place, normal = jax.jit(jax.vmap(one))(pos, mat)
    count = len(pos)
    return dist.reshape(count, -1), place.reshape(count, -1, 3), normal.reshape(count, -1, 3)


@pytest.mark.parametrize("shape", ["sphere", "capsule"])
def test_box_contacts_are_those_of_mjx(shape):
    size = {"sphere": (0.25, 0.0, 0.0), "capsule": (0.08, 0.1414, 0.0)}[shape]
    pos, mat = _round_a_box(20_000)
    centre, axis = tuple(pos.T), tuple(mat[:, :, 2].T)
    if shape == "sphere":
        found = jax.jit(lambda: contacts.sphere_box(Sphere(centre, size[0]), (0.0,) * 3, HALF))()
        dist, place, normal = _by_mjx(collision_convex._sphere_convex, size, pos, mat)
    else:
        capsule = Capsule(centre, size[0], axis, size[1])
        found = jax.jit(lambda: contacts.capsule_box(capsule, (0.0,) * 3, HALF))()
        dist, place, normal = _by_mjx(collision_convex._capsule_convex, size, pos, mat)
    for k, own in enumerate(found):
        touches = (own.dist < 0) | (dist[:, k] < 0)
        assert np.sum(touches) > 5_000
        off = np.stack(
            [
                np.abs(own.dist - dist[:, k]),
                np.abs(jnp.stack(own.pos, -1) - place[:, k]).max(axis=-1),
                np.abs(jnp.stack(own.normal, -1) - normal[:, k]).max(axis=-1),
            ]
        )[:, np.asarray(touches)]
        # A nearest point a hair away has a direction that float32 cannot tell well.
        assert np.mean(off < 1e-5) > 0.995
        assert np.all(off[:2] < 1e-4)
        assert np.all(off[2] < 1e-2)


def test_boxes_below_the_floor_touch_nothing():
    pos, mat = _round_a_box(64)
    below = (0.0, 0.0, -100.0)
    capsule = Capsule(tuple(pos.T), 0.08, tuple(mat[:, :, 2].T), 0.14)
    found = contacts.sphere_box(Sphere(tuple(pos.T), 0.25), below, HALF) + contacts.capsule_box(
        capsule, below, HALF
    )
    assert all(np.all(contact.dist > 0) for contact in found)
