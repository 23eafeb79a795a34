"""Sources of CUDA kernels."""

import importlib.resources
from pathlib import Path

import pytest

from homing.compile import cuda

PACKAGE = Path(str(importlib.resources.files("homing")))
SOURCES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.cu"))


def test_what_a_source_includes_is_put_in_place(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "one.cu").write_text('first\n#include "../two.cuh"\nlast\n')
    (tmp_path / "two.cuh").write_text('#include "three.cuh"\n#include <kept>\n')
    (tmp_path / "three.cuh").write_text("third\n")
    assert cuda._source(tmp_path / "a" / "one.cu").split() == ["first", "third", "#include", "<kept>", "last"]


@pytest.mark.parametrize("source", SOURCES)
def test_every_source_is_whole(source):
    text = cuda._source(PACKAGE / source)
    assert '#include "' not in text
    assert text.count("__global__") >= 1
