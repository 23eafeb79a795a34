"""Homing's environments behind the interfaces of other libraries, each in a module with an extra of its own.

gymnasium  `gymnasium.make("homing/Ant-v0")` and `make_vec`, as goal environments
sb3        a `VecEnv` of Stable-Baselines3
gymnax     gymnax's `Environment`, and the five-value signature of rejax
stoa       stoa's `Environment`
ogbench    one environment for the agents and the evaluation of OGBench
"""
