"""Visualisation: renderings and videos of policies, trajectories and critic maps."""
