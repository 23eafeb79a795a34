"""Closed forms of contacts with boxes, against MuJoCo's own collisions."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import homing
from homing.physics import box_contacts
from homing.physics.quiet import quietly

with quietly():
    from mujoco import mjx

SPHERE = '<body><freejoint/><geom type="sphere" size="0.2"/></body>'
BOX = '<body pos="{pos}"><joint type="slide" axis="1 0 0"/><geom type="box" size="{size}"/></body>'


def model_of(bodies: str) -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{bodies}</worldbody></mujoco>")


def placed(model, positions, quats):
    """MuJoCo's data with geoms at these poses; kinematics is not needed for collisions."""
    data = mujoco.MjData(model)
    data.geom_xpos[:] = positions
    for i, quat in enumerate(quats):
        mujoco.mju_quat2Mat(data.geom_xmat[i], quat)
    return data


def by_us(model, positions, mats, parallel):
    """All contacts of the model's pairs by this package: distances, positions, normals."""
    on_device = mjx.put_model(model, impl="jax")

    @jax.jit
    def collide(xpos, xmat):
        data = mjx.make_data(on_device).replace(geom_xpos=xpos, geom_xmat=xmat)
        with box_contacts.closed_forms(parallel):
            contact = mjx.collision(on_device, data)._impl.contact
        return contact.dist, contact.pos, contact.frame

    dist, pos, frame = collide(jnp.asarray(positions), jnp.asarray(mats).reshape(-1, 3, 3))
    return np.asarray(dist), np.asarray(pos), np.asarray(frame)


def test_spheres_touch_boxes_in_any_pose_as_in_mujoco():
    model = model_of(SPHERE + '<geom type="box" size="0.5 0.3 0.4"/>')
    (sphere,) = np.flatnonzero(model.geom_type == mujoco.mjtGeom.mjGEOM_SPHERE)
    rng, touched, deep = np.random.default_rng(0), 0, 0
    for _ in range(60):
        positions = np.zeros((2, 3))
        positions[sphere] = rng.uniform(-0.7, 0.7, 3)
        quats = rng.normal(size=(2, 4))
        quats /= np.linalg.norm(quats, axis=1, keepdims=True)
        data = placed(model, positions, quats)
        mujoco.mj_collision(model, data)
        dist, pos, frame = by_us(model, positions, data.geom_xmat, parallel=False)
        if data.ncon == 0:
            assert dist[0] > 0
            continue
        touched, deep = touched + 1, deep + (dist[0] < -0.2)
        assert dist[0] == pytest.approx(data.contact[0].dist, abs=1e-5)
        np.testing.assert_allclose(pos[0], data.contact[0].pos, atol=1e-5)
        np.testing.assert_allclose(frame[0][0], data.contact[0].frame[:3], atol=1e-4)
        np.testing.assert_allclose(frame[0] @ frame[0].T, np.eye(3), atol=1e-5)
    assert touched > 20 and deep > 3  # some with the centre in the box


def test_planes_touch_the_lower_corners_of_boxes_as_in_mujoco():
    cube = '<body><freejoint/><geom type="box" size="0.5 0.3 0.4"/></body>'
    model = model_of('<geom type="plane" size="5 5 1"/>' + cube)
    rng, counts = np.random.default_rng(1), set()
    for _ in range(30):
        quats = rng.normal(size=(2, 4))
        quats[0] += [3.0, 0, 0, 0]
        quats /= np.linalg.norm(quats, axis=1, keepdims=True)
        positions = np.array([[0.1, 0.2, 0.3], [0.3, -0.2, rng.uniform(0, 0.8)]])
        data = placed(model, positions, quats)
        mujoco.mj_collision(model, data)
        dist, pos, frame = by_us(model, positions, data.geom_xmat, parallel=False)
        touching = dist < 0
        counts.add(int(touching.sum()))
        assert touching.sum() == data.ncon
        for contact in data.contact:
            (same,) = np.flatnonzero(np.linalg.norm(pos - contact.pos, axis=1) < 1e-5)
            assert dist[same] == pytest.approx(contact.dist, abs=1e-5)
            np.testing.assert_allclose(frame[same, 0], contact.frame[:3], atol=1e-5)
    assert counts >= {2, 3, 4}


@pytest.mark.parametrize("axis", range(3))
@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_parallel_boxes_touch_at_the_corners_of_their_overlap_as_in_mujoco(axis, side):
    first, second = np.array([0.5, 0.4, 0.3]), np.array([0.2, 0.6, 0.25])
    shown = lambda x: " ".join(map(str, x))
    model = model_of(BOX.format(pos="0 0 0", size=shown(first)) + BOX.format(pos="1 1 1", size=shown(second)))
    assert box_contacts.are_parallel(model)
    rng = np.random.default_rng(axis)
    for depth in (0.01, 0.03, -0.05):
        positions = np.zeros((2, 3))
        positions[1] = rng.uniform(-0.2, 0.2, 3)
        positions[1, axis] = side * (first[axis] + second[axis] - depth)
        data = placed(model, positions, np.tile([1.0, 0, 0, 0], (2, 1)))
        mujoco.mj_collision(model, data)
        dist, pos, frame = by_us(model, positions, data.geom_xmat, parallel=True)
        np.testing.assert_allclose(dist, -depth, atol=1e-6)
        if depth < 0:
            assert data.ncon == 0
            continue
        theirs = np.array([contact.pos for contact in data.contact])
        for corner in pos:
            assert np.linalg.norm(theirs - corner, axis=1).min() < 1e-5
        assert len(np.unique(pos.round(4), axis=0)) == 4
        np.testing.assert_allclose(frame[:, 0], np.tile(data.contact[0].frame[:3], (4, 1)), atol=1e-6)


def test_boxes_are_parallel_where_no_joint_turns_them():
    assert not box_contacts.are_parallel(model_of('<body><freejoint/><geom type="box" size="1 1 1"/></body>'))
    assert not box_contacts.are_parallel(model_of('<geom type="box" size="1 1 1" euler="0 0 30"/>'))
    turned = '<body quat="0 1 0 0"><joint type="slide"/><geom type="box" size="1 1 1"/></body>'
    assert not box_contacts.are_parallel(model_of(turned))
    within = '<body><joint type="hinge"/><geom size="1"/><body><geom type="box" size="1 1 1"/></body></body>'
    assert not box_contacts.are_parallel(model_of(within))
    seen_only = (
        '<body><freejoint/><geom type="box" size="1 1 1" contype="0" conaffinity="0"/><geom size="1"/></body>'
    )
    assert box_contacts.are_parallel(model_of(seen_only))
    in_pairs = seen_only.replace('type="box"', 'type="box" name="a"').replace(
        '<geom size="1"/>', '<geom name="b" size="1"/>'
    )
    pair = '<contact><pair geom1="a" geom2="b"/></contact>'
    xml = f"<mujoco><worldbody>{in_pairs}</worldbody>{pair}</mujoco>"
    assert not box_contacts.are_parallel(mujoco.MjModel.from_xml_string(xml))


@pytest.mark.parametrize(("id", "parallel"), [("ant_push", True), ("arm_binpick_easy", False)])
def test_the_block_of_ant_push_never_turns_and_cubes_do(id, parallel):
    assert homing.make(id, num_envs=1).scene.engine._parallel is parallel


def test_others_trace_mjx_as_it_is():
    model = model_of(SPHERE + '<geom type="box" size="0.5 0.3 0.4"/>')
    on_device = mjx.put_model(model, impl="jax")
    data = mjx.make_data(on_device)
    plain = lambda data: mjx.collision(on_device, data)._impl.contact.dist

    def ours(data):
        with box_contacts.closed_forms(False):
            return plain(data)

    assert len(str(jax.make_jaxpr(ours)(data))) < len(str(jax.make_jaxpr(plain)(data)))
