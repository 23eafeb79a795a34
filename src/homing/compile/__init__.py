"""From traced functions to compiled programs: XLA options, a run's programs, and their caches on disk."""
