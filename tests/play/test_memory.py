"""Memory of `homing play`: cycles are collected at fixed times, and a replaced simulation is let go."""

import gc
import weakref

import pytest

from homing.play import memory
from homing.play.memory import PERIOD, Housekeeping


class Node:
    pass


def cycle() -> weakref.ref:
    """A weak reference to an object that only refers to itself."""
    node = Node()
    node.self = node
    return weakref.ref(node)


@pytest.fixture
def clock(monkeypatch):
    """A clock set by hand, with Python's own collections off."""
    now = [100.0]
    monkeypatch.setattr(memory.time, "monotonic", lambda: now[0])
    gc.disable()
    yield now
    gc.enable()
    gc.unfreeze()


def test_cycles_are_collected_once_a_period(clock):
    housekeeping = Housekeeping()
    housekeeping(1)
    left = cycle()
    clock[0] += PERIOD / 2
    housekeeping(1)
    assert left() is not None
    clock[0] += PERIOD
    housekeeping(1)
    assert left() is None


def test_what_a_simulation_holds_is_set_apart_and_let_go_with_it(clock):
    housekeeping = Housekeeping()
    held = Node()
    held.self, reference = held, weakref.ref(held)
    housekeeping(1)
    assert gc.get_freeze_count() > 0
    del held
    clock[0] += 2 * PERIOD
    housekeeping(1)
    assert reference() is not None  # set apart
    housekeeping(2)
    assert reference() is None
