"""Data: unrolls, the replay buffer, and hindsight relabelling."""
