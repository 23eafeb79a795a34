"""A run on disk: its folder, checkpoints, metrics, loggers and progress display."""
