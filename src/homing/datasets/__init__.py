"""Datasets of episodes: collected from a policy, read from files and written to them, learned from offline."""

from homing.datasets.episodes import Dataset
from homing.datasets.npz import read_dataset, write_dataset
from homing.datasets.replay import check_dataset, stored

__all__ = ["Dataset", "check_dataset", "read_dataset", "stored", "write_dataset"]
