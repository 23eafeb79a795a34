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
  for (const [name, values] of Object.entries(job.inputs)) made.arrays[name].set(values);
  const found = [];
  for (let k = 0; k < job.times; k++) {
    for (const name of job.calls) made.call[name]();
    found.push(Object.fromEntries(job.outputs.map((n) => [n, Array.from(made.arrays[n], String)])));
  }
  fs.writeFileSync(`${folder}/found.json`, JSON.stringify(found));
})();
"""


def run_program(program, inputs, calls, outputs, times=1):
    """Call exported functions in Node; the named arrays after each round."""
    words = lambda x: (-x.astype(np.int32) if x.dtype == bool else x).reshape(-1).tolist()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        job = {
            "description": program.description,
            "inputs": {name: words(np.asarray(x)) for name, x in inputs.items()},
            "calls": calls,
            "outputs": outputs,
            "times": times,
        }
        (path / "job.json").write_text(json.dumps(job))
        (path / "code").write_bytes(program.code)
        (path / "constants").write_bytes(program.constants)
        subprocess.run([NODE, "-e", SCRIPT, folder, str(MACHINE)], check=True, timeout=120)
        rounds = json.loads((path / "found.json").read_text())
    return [{n: np.array([float(v.replace("Infinity", "inf")) for v in x]) for n, x in one.items()} for one in rounds]


def translated(compute, *args):
    """The leaves of `compute(*args)` as the translated function computes them."""
    args = [np.asarray(a) for a in args]
    outs = jax.tree.leaves(jax.eval_shape(compute, *args))
    translator = Translator()
    names = [f"in{k}" for k in range(len(args))], [f"out{k}" for k in range(len(outs))]
    for name, x in zip(names[0] + names[1], [*args, *outs], strict=True):
        translator.buffer(name, x.shape, x.dtype)
    translator.function("f", compute, *names)
    inputs = dict(zip(names[0], args, strict=True))
    found = run_program(translator.program(), inputs, ["f"], names[1])[0]
    return [found[n].reshape(o.shape) for n, o in zip(names[1], outs, strict=True)]


def check_same(compute, *args, atol=1e-6):
    """The translated function equals JAX's."""
    expected = [np.asarray(x) for x in jax.tree.leaves(jax.jit(compute)(*args))]
    for found, want in zip(translated(compute, *args), expected, strict=True):
        found = -found if want.dtype == bool else found  # a mask of 32 bits
        want = want.astype(np.float64)
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=atol)
