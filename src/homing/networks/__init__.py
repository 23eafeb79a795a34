"""Network modules, stacks of networks, and the optimiser step."""

from homing.networks.modules import MLP, Dense
from homing.networks.net_config import (
    ACTIVATIONS,
    COMPUTE_DTYPES,
    NetConfig,
    depth_of,
    nets_of,
    with_nets,
)
from homing.networks.optim import ADAM, Fit, adam, parameters, with_parameters
from homing.networks.stack import Member, Stack

__all__ = [
    "ACTIVATIONS",
    "ADAM",
    "COMPUTE_DTYPES",
    "MLP",
    "Dense",
    "Fit",
    "Member",
    "NetConfig",
    "Stack",
    "adam",
    "depth_of",
    "nets_of",
    "parameters",
    "with_nets",
    "with_parameters",
]
