"""Damaged and crafted files for tests: JSON texts, policy files and folders of runs; and how they are refused."""

from __future__ import annotations

import copy
import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from homing.errors import HomingError

DEEP = 100_000
JUNK: tuple[Any, ...] = (
    None,
    [],
    {},
    "x",
    -1,
    True,
    1e300,
    10**15,
    [None],
    {"a": {"b": []}},
    [["x"]],
    "\x1b[2J",
)
# Texts that are valid in no file of a run.
TEXTS: dict[str, bytes] = {
    "nothing": b"",
    "blanks": b" \n \n",
    "half an object": b'{"agent": "crl", ',
    "a text": b'"x"\n',
    "a number": b"7\n",
    "null": b"null\n",
    "no utf-8": b'{"agent": "\xff\xfe"}\n',
    "zero bytes": b"\0" * 64 + b"\n",
    "byte order mark": b"\xef\xbb\xbf[1]\n",
    "400 digits": b'{"step": ' + b"9" * 400 + b"}\n",
    "5000 digits": b"[" + b"9" * 5000 + b"]\n",
    "large float": b'{"seed": 0, "step": 1e999}\n',
    "NaN": b'[{"step": NaN}]\n',
    "deep lists": b"[" * DEEP + b"]" * DEEP + b"\n",
    "deep objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP + b"\n",
    "deep enough": b"[" * 200 + b"]" * 200 + b"\n",
    "a key twice": b'{"agent": "crl", "env": "ant", "env": "ant", "seed": 0, "seed": 0, "step": 1}\n',
    "half a surrogate": b'{"agent": "\\ud800", "env": "ant", "seed": 0, "step": 1, "x": "\\ud800"}\n',
    "escape codes": b'{"agent": "\\u001b[31m", "env": "ant", "seed": 0, "step": 1, "x": "\\u001b"}\n',
    "random bytes": random.Random(5).randbytes(500),
}


# Contents of a run's config.json.
CONFIGS: dict[str, str] = {
    "empty": "",
    "no JSON": "{",
    "a list": "[]",
    "null": "null",
    "a number": "3",
    "a text": '"crl"',
    "no agent": '{"env": "ant"}',
    "no env": '{"agent": "crl", "train": {}, "settings": {}}',
    "no train": '{"agent": "crl", "env": "ant", "settings": {}}',
    "agent of another type": '{"agent": 3, "env": "ant", "train": {}, "settings": {}}',
    "agent unknown": '{"agent": "clr", "env": "ant", "train": {}, "settings": {}}',
    "env unknown": '{"agent": "crl", "env": "mars", "train": {}, "settings": {}}',
    "train a number": '{"agent": "crl", "env": "ant", "train": 3, "settings": {}}',
    "unknown setting": '{"agent": "crl", "env": "ant", "train": {"num_env": 3}, "settings": {}}',
    "bad setting": '{"agent": "crl", "env": "ant", "train": {"num_envs": "3"}, "settings": {}}',
    "setting outside": '{"agent": "crl", "env": "ant", "train": {"num_envs": 0}, "settings": {}}',
    "NaN": '{"agent": "crl", "env": "ant", "train": {}, "settings": {"gamma": NaN}}',
    "settings of another": '{"agent": "crl", "env": "ant", "train": {}, "settings": {"her": true}}',
    "imports": '{"agent": "crl", "env": "ant", "train": {}, "settings": {}, "imports": ["no_such_module"]}',
    "imports no list": '{"agent": "crl", "env": "ant", "train": {}, "settings": {}, "imports": "os"}',
    "imports no name": '{"agent": "crl", "env": "ant", "train": {}, "settings": {}, "imports": ["../x"]}',
    "bytes": "\udcff",
}
# Tables that are none of a study.
TABLES: dict[str, bytes] = {
    "empty": b"",
    "no columns of a study": b"a,b\n1,2\n",
    "bytes": b"\x00\x01\xff",
    "a JSON file": b'{"run": 1}',
    "a text": b"hello\nworld\n",
    "no numbers": b"study,run,seed,step,iteration,eval/success_any\nx,a,b,c,d,e\n",
    "holes": b"study,run,seed,step,iteration,eval/success_any\nx,a,0,10,1,0.5\n,,,,,\n",
    "no metric": b"study,run,seed,step,iteration\nx,a,0,10,1\n",
}
# Files that plan no study.
STUDIES: dict[str, str] = {
    "empty": "",
    "no TOML": "[run",
    "unknown key": "[rnu]\nagent = 'crl'\n[grid]\nenv = ['ant']",
    "no agent": "[run]\n[grid]\nenv = ['ant']",
    "no env": "[run]\nagent = 'crl'\n[grid]\ngamma = [0.9]",
    "unknown setting": "[run]\nagent = 'crl'\ngama = 1\n[grid]\nenv = ['ant']",
    "outside": "[run]\nagent = 'crl'\ngamma = 2.0\n[grid]\nenv = ['ant']",
    "nan": "[run]\nagent = 'crl'\ncritic_lr = nan\n[grid]\nenv = ['ant']",
    "inf": "[run]\nagent = 'crl'\ncritic_lr = inf\n[grid]\nenv = ['ant']",
    "bad seeds": "[run]\nagent = 'crl'\nseeds = 'x'\n[grid]\nenv = ['ant']",
    "no seeds": "[run]\nagent = 'crl'\nseeds = 0\n[grid]\nenv = ['ant']",
    "too many seeds": "[run]\nagent = 'crl'\nseeds = 1000000000\n[grid]\nenv = ['ant']",
    "old name": "[run]\nagent = 'crl'\noptions = {}\n[grid]\nenv = ['ant']",
    "options": "[run]\nagent = 'crl'\nenv_options = { 'task.within' = -1.0 }\n[grid]\nenv = ['ant']",
    "grid of a number": "[run]\nagent = 'crl'\n[grid]\nenv = 3",
    "grid of nothing": "[run]\nagent = 'crl'\n[grid]\nenv = []",
    "agent a number": "[run]\nagent = 3\n[grid]\nenv = ['ant']",
    "env a number": "[run]\nagent = 'crl'\n[grid]\nenv = [3]",
    "run a list": "run = []\n[grid]\nenv = ['ant']",
    "episode length": "[run]\nagent = 'crl'\nepisode_length = 0\n[grid]\nenv = ['ant']",
    "batch of one": "[run]\nagent = 'crl'\nbatch_size = 1\n[grid]\nenv = ['ant']",
    "network": "[run]\nagent = 'crl'\ncritic_net = { width = 0 }\n[grid]\nenv = ['ant']",
    "network no table": "[run]\nagent = 'crl'\ncritic_net = 3\n[grid]\nenv = ['ant']",
    "bytes": "\udcff",
}


def link_to(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


def sparse(path: Path) -> None:
    """A file of two terabytes that takes no room."""
    path.touch()
    os.truncate(path, 2 * 10**12)


# Things in the place of a file.
OBSTACLES: dict[str, Callable[[Path], None]] = {
    "a folder": lambda path: path.mkdir(),
    "a pipe": lambda path: os.mkfifo(path),
    "a link in a circle": lambda path: path.symlink_to(path.name),
    "a link to a device": link_to("/dev/zero"),
    "a link to a folder": link_to("/"),
    "a huge file": sparse,
}


def replace(path: Path, content: bytes | Callable[[Path], None]) -> None:
    """Put other content, or an obstacle, in the place of a file."""
    path.unlink(missing_ok=True)
    if callable(content):
        content(path)
    else:
        path.write_bytes(content)


def altered(content: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy of JSON content with one value replaced."""
    changed = copy.deepcopy(content)
    place = changed
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    return changed


def without(content: Any, path: tuple[Any, ...]) -> Any:
    """A copy of JSON content with one value removed."""
    changed = copy.deepcopy(content)
    place = changed
    for name in path[:-1]:
        place = place[name]
    del place[path[-1]]
    return changed


def places(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of all values of JSON content, inner ones too."""
    pairs = content.items() if isinstance(content, dict) else enumerate(content)
    for name, value in pairs:
        yield (*path, name)
        if isinstance(value, dict | list):
            yield from places(value, (*path, name))


def split(raw: bytes) -> tuple[dict[str, Any], bytes]:
    """Header and arrays of a safetensors file."""
    size = int.from_bytes(raw[:8], "little")
    return json.loads(raw[8 : 8 + size]), raw[8 + size :]


def joined(header: Any, data: bytes, size: int | None = None) -> bytes:
    """A safetensors file; `header` is JSON content or the bytes themselves."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if size is None else size).to_bytes(8, "little") + text + data


def damaged(raw: bytes) -> Iterator[tuple[str, bytes]]:
    """Cut, longer, and with single bits changed."""
    draw = random.Random(7)
    for size in sorted({0, 1, 7, 8, 9, 10, len(raw) - 1, *(draw.randrange(len(raw)) for _ in range(20))}):
        yield f"cut to {size}", raw[:size]
    for extra in (b"\0", b" " * 8, raw):
        yield f"{len(extra)} bytes more", raw + extra
    header = int.from_bytes(raw[:8], "little")
    spots = [*range(8), *(draw.randrange(8, 8 + header) for _ in range(40))]
    spots += [draw.randrange(8 + header, len(raw)) for _ in range(20)]
    for spot in spots:
        bit = draw.randrange(8)
        yield f"bit {bit} of byte {spot}", raw[:spot] + bytes([raw[spot] ^ (1 << bit)]) + raw[spot + 1 :]


def crafted(raw: bytes) -> Iterator[tuple[str, bytes]]:
    """Headers that no writer makes."""
    header, data = split(raw)
    first, second = [name for name in header if name != "__metadata__"][:2]
    change = lambda value, *path: joined(altered(header, path, value), data)
    for size in (2**63, 2**64 - 1, len(raw) - 8, len(raw), 2**32):
        yield f"header of {size}", joined(header, data, size)
    for dtype in ("F64", "BF16", "I64", "F8_E4M3", "f32", "", None, 4, ["F32"]):
        yield f"type {dtype}", change(dtype, first, "dtype")
    shapes = ([-1], [2**62, 4], [10**18] * 8, [0], [1.5], ["2"], [True], None, "2", {}, [1] * 5000, [[2]])
    for shape in shapes:
        yield f"shape {str(shape)[:20]}", change(shape, first, "shape")
    offsets = (
        [-8, 0],
        [0, 2**63],
        [8, 0],
        [0],
        [0, 4, 8],
        [None, 4],
        [0.0, 4.0],
        ["0", "4"],
        None,
        [0, len(data) + 4],
    )
    for offset in offsets:
        yield f"offsets {offset}", change(offset, first, "data_offsets")
    yield "overlap", change(header[second]["data_offsets"], first, "data_offsets")
    yield "extra field", change(1, first, "extra")
    for junk in (None, [], "x", 3):
        yield f"entry {junk}", change(junk, first)
        yield f"metadata {junk}", change(junk, "__metadata__")
        yield f"notes {junk}", change(junk, "__metadata__", "homing")
    yield "no arrays", joined({"__metadata__": header["__metadata__"]}, b"")
    yield "one array less", joined(without(header, (first,)), data)
    yield "a list", joined([header], data)
    text = json.dumps(header).encode()
    yield "a key twice", joined(text[:-1] + b", " + json.dumps({first: header[first]}).encode()[1:], data)
    yield "deep header", joined(b'{"a":' * DEEP + b"1" + b"}" * DEEP, data)
    yield "deep notes", change("[" * DEEP, "__metadata__", "homing")
    yield "NaN in notes", change('{"format": NaN}', "__metadata__", "homing")
    yield "not utf-8", joined(text.replace(b"homing", b"hom\xffng"), data)


def refused(read: Callable[[Path], Any], path: Path) -> str:
    """The one message of a refusal, which names the path."""
    with pytest.raises(HomingError) as caught:
        read(path)
    message = str(caught.value)
    assert str(path) in message and "\n" not in message and len(message) < 1000, message
    assert ";" in message or ":" in message  # what is wrong, and the way out
    return message


def harmless(read: Callable[[Path], Any], path: Path) -> Any:
    """Refused with one message, or read like a sound file."""
    try:
        return read(path)
    except HomingError:
        refused(read, path)
        return None
