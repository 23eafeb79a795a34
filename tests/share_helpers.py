"""Translated functions run by Node, and compared with JAX."""

import json
import shutil
import subprocess
import tempfile
from pathlib import Path

import jax
import numpy as np
import pytest

from homing.share.translate import Translator

MACHINE = Path(__file__).parent.parent / "src" / "homing" / "share" / "assets" / "machine.js"
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="needs Node")
SCRIPT = """
const fs = require("fs"), [folder, machine] = process.argv.slice(1);
const { makeMachine } = require(machine);
const read = (name) => new Uint8Array(fs.readFileSync(`${folder}/${name}`));
(async () => {
  const job = JSON.parse(fs.readFileSync(`${folder}/job.json`));
  const made = await makeMachine(job.description, read("code"), read("constants"));
  for (const [name, values] of Object.entries(job.inputs)) made.arrays[name].set(values.map(Number));
  const found = [];
  for (let k = 0; k < job.times; k++) {
    for (const [name, values] of Object.entries(job.each[k] || {})) made.arrays[name].set(values.map(Number));
    for (const name of job.calls) made.call[name]();
    found.push(Object.fromEntries(job.outputs.map((n) => [n, Array.from(made.arrays[n], String)])));
  }
  fs.writeFileSync(`${folder}/found.json`, JSON.stringify(found));
})();
"""


def run_program(program, inputs, calls, outputs, times=1, each=()):
    """Call exported functions in Node; the named arrays after each round, `each` of which may begin with inputs."""
    numbers = lambda x: (-x.astype(np.int32) if x.dtype == bool else x).reshape(-1).tolist()
    # JSON has no infinity; JavaScript reads its name.
    words = lambda x: [str(v).replace("inf", "Infinity").replace("nan", "NaN") for v in numbers(x)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        job = {
            "description": program.description,
            "inputs": {name: words(np.asarray(x)) for name, x in inputs.items()},
            "each": [{name: words(np.asarray(x)) for name, x in one.items()} for one in each],
            "calls": calls,
            "outputs": outputs,
            "times": times,
        }
        (path / "job.json").write_text(json.dumps(job))
        (path / "code").write_bytes(program.code)
        (path / "constants").write_bytes(program.constants)
        subprocess.run([NODE, "-e", SCRIPT, folder, str(MACHINE)], check=True, timeout=120)
        rounds = json.loads((path / "found.json").read_text())
    return [
        {n: np.array([float(v.replace("Infinity", "inf")) for v in x]) for n, x in one.items()}
        for one in rounds
    ]


def run_goals(about, points):
    """x, y and fault of each point as the page's goal space settles it."""
    script = """
const { GoalSpace } = require(process.argv[1]);
const { about, points } = JSON.parse(require("fs").readFileSync(0));
const space = new GoalSpace(about);
console.log(JSON.stringify(points.map(([x, y]) => [...space.nearest(x, y), space.fault(x, y)])));
"""
    given = json.dumps({"about": about, "points": np.asarray(points).tolist()})
    command = [NODE, "-e", script, str(MACHINE.with_name("goals.js"))]
    return json.loads(subprocess.run(command, input=given, capture_output=True, text=True, check=True).stdout)


def run_aims(about, pairs):
    """What a policy is told, for pairs of an achieved goal and a goal, by the page's goal space."""
    script = """
const { GoalSpace } = require(process.argv[1]);
const { about, pairs } = JSON.parse(require("fs").readFileSync(0));
const space = new GoalSpace(about);
console.log(JSON.stringify(pairs.map(([here, goal]) => Array.from(space.aim(here, goal)))));
"""
    given = json.dumps({"about": about, "pairs": np.asarray(pairs).tolist()})
    command = [NODE, "-e", script, str(MACHINE.with_name("goals.js"))]
    return json.loads(subprocess.run(command, input=given, capture_output=True, text=True, check=True).stdout)


def translated(*cases):
    """Leaves of `compute(*args)` for each case (compute, *args), as the translated functions compute them."""
    translator, inputs, calls, found_at = Translator(), {}, [], []
    for k, (compute, *args) in enumerate(cases):
        args = [np.asarray(a) for a in args]
        outs = jax.tree.leaves(jax.eval_shape(compute, *args))
        reads, writes = (
            [f"{kind}{k}_{i}" for i in range(n)] for kind, n in (("in", len(args)), ("out", len(outs)))
        )
        for name, x in zip(reads + writes, [*args, *outs], strict=True):
            translator.buffer(name, x.shape, x.dtype)
        translator.function(f"f{k}", compute, reads, writes)
        inputs |= dict(zip(reads, args, strict=True))
        calls.append(f"f{k}")
        found_at += zip(writes, [o.shape for o in outs], strict=True)
    found = run_program(translator.program(), inputs, calls, [name for name, _ in found_at])[0]
    return [found[name].reshape(shape) for name, shape in found_at]


def check_same(*cases, atol=1e-6):
    """The translated functions equal JAX's: cases (compute, *args), in one program and one process."""
    computed = jax.jit(
        lambda given: [compute(*args) for (compute, *_), args in zip(cases, given, strict=True)]
    )
    expected = [np.asarray(x) for x in jax.tree.leaves(computed([case[1:] for case in cases]))]
    for k, (found, want) in enumerate(zip(translated(*cases), expected, strict=True)):
        found = -found if want.dtype == bool else found  # a mask of 32 bits
        np.testing.assert_allclose(
            found, want.astype(np.float64), rtol=1e-5, atol=atol, err_msg=f"output {k}"
        )
