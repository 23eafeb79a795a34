"""Trained policies: small files without code in them, some of which come with the package."""

from homing.policies.bundled import shipped, shipped_names
from homing.policies.store import EnvChoice, Policies, find_policies, read_policies, write_policies

__all__ = [
    "EnvChoice",
    "Policies",
    "find_policies",
    "read_policies",
    "shipped",
    "shipped_names",
    "write_policies",
]
