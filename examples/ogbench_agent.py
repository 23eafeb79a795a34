"""One of OGBench's agents learns from our data and OGBench's evaluation runs it in our environment.

`python examples/ogbench_agent.py --ogbench FOLDER --data point.npz`. FOLDER is a clone of OGBench or its unpacked
source distribution; its agents need `pip install "homing[ogbench]" distrax ml_collections`.
"""

import argparse
import importlib
import json
import sys
import time
from datetime import date
from importlib.metadata import version
from pathlib import Path

import numpy as np

from homing.adapters.ogbench import OGBenchEnv
from homing.datasets import read_dataset

PACKAGES = ("homing", "ogbench", "jax", "flax", "distrax", "gymnasium")
FETCH = "clone github.com/seohongpark/ogbench or unpack `pip download --no-deps --no-binary :all: ogbench`"


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ogbench", type=Path, required=True, help="clone or unpacked source distribution")
    parser.add_argument("--data", type=Path, required=True, help="file of `homing data export`")
    parser.add_argument("--agent", default="gcbc", help="a file of OGBench's impls/agents")
    parser.add_argument("--updates", type=int, default=5_000)
    parser.add_argument("--episodes", type=int, default=200, help="episodes of the evaluation")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="append the result to this file as a line of JSON")
    args = parser.parse_args(argv)
    folder = args.ogbench / "impls" / "agents"
    known = sorted(path.stem for path in folder.glob("[!_]*.py") if "dataset_class" in path.read_text())
    if not known:
        parser.error(f"there are no agents in {folder}: {FETCH}")
    if args.agent not in known:
        parser.error(f"OGBench has no offline agent {args.agent}; it has {', '.join(known)}")
    if min(args.updates, args.episodes) < 1:
        parser.error("--updates and --episodes must be at least 1")
    return args


def main(argv: list[str] | None = None) -> dict:
    args = arguments(argv)
    env = OGBenchEnv(read_dataset(args.data))
    sys.path.insert(0, str(args.ogbench / "impls"))
    # All that learns and evaluates is OGBench's, in the order of its impls/main.py.
    load_dataset = importlib.import_module("ogbench.utils").load_dataset
    datasets, agents = importlib.import_module("utils.datasets"), importlib.import_module("agents").agents
    evaluate = importlib.import_module("utils.evaluation").evaluate
    config = importlib.import_module(f"agents.{args.agent}").get_config()
    data = datasets.Dataset.create(**load_dataset(str(args.data)))
    data = getattr(datasets, config["dataset_class"])(data, config)
    np.random.seed(args.seed)  # noqa: NPY002
    batch, begin = data.sample(1), time.perf_counter()
    agent = agents[args.agent].create(args.seed, batch["observations"], batch["actions"], config)
    for update in range(1, args.updates + 1):
        agent, info = agent.update(data.sample(config["batch_size"]))
        if update == args.updates or update % 500 == 0:
            print(update, {name: round(float(value), 4) for name, value in info.items()}, flush=True)
    trained = time.perf_counter() - begin
    env.reset(seed=args.seed)
    stats, _, _ = evaluate(agent, env, config=config, num_eval_episodes=args.episodes)
    row = {"agent": f"ogbench/{args.agent}", "env": env.spec.id, "data": args.data.name, "seed": args.seed}
    row |= {"updates": args.updates, "episodes": args.episodes, "eval/success_any": stats["success"]}
    row |= {"time/training": round(trained, 1), "date": str(date.today())}
    row |= {"versions": {name: version(name) for name in PACKAGES}}
    print(json.dumps(row))
    if args.out:
        with args.out.open("a") as file:
            file.write(json.dumps(row) + "\n")
    return row


if __name__ == "__main__":
    main()
