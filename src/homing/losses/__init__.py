"""Losses as pure functions: contrastive objectives, energies, survival losses."""
