"""Run the notebooks of docs/ and store them with what they print and draw."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parent.parent
NOTEBOOKS = ROOT / "docs" / "notebooks"
TIMEOUT = 3600


def run(path: Path) -> None:
    """Execute a notebook in an empty folder; outputs keep neither times nor places of this machine."""
    book = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as work:
        os.environ["TMPDIR"] = work
        client = NotebookClient(book, timeout=TIMEOUT, kernel_name="python3", record_timing=False)
        client.execute(cwd=work)
    for cell in book.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = tidied(cell.outputs, work)
    book.metadata["language_info"] = {"name": "python"}
    nbformat.write(book, path)


def tidied(outputs: list[Any], work: str) -> list[Any]:
    """Lines that were printed as one output, pictures in one format, and no folder of this machine."""
    kept: list[Any] = []
    for output in outputs:
        if output["output_type"] == "stream":
            output["text"] = _placeless(output["text"], work)
            if kept and kept[-1]["output_type"] == "stream":
                kept[-1]["text"] += output["text"]
                continue
        elif "data" in output:
            output["data"].pop("image/jpeg", None)
            output["data"] = {
                kind: _placeless(text, work) if kind.startswith("text/") else text
                for kind, text in output["data"].items()
            }
        kept.append(output)
    return kept


def _placeless(text: str, work: str) -> str:
    return re.sub(rf"{re.escape(work)}/tmp\w+", "/tmp/homing", text).replace(work, "/tmp/homing")


if __name__ == "__main__":
    for path in [Path(name) for name in sys.argv[1:]] or sorted(NOTEBOOKS.glob("*.ipynb")):
        run(path)
        print(f"{path}: {path.stat().st_size / 1e3:.0f} kB")
