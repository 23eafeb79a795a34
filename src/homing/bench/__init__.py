"""Benchmarks: speed of physics, learner and training, their breakdown, scaling and roofline."""
