"""What a command ends with: every exception becomes one line for a person and an exit code."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path

from homing.cli import interrupts
from homing.errors import HomingError, shown

DEBUG = "HOMING_DEBUG"
"""Environment variable: 1 shows tracebacks."""
BAD_INPUT, FAILED, CLOSED_PIPE = 2, 1, 141  # the last as a shell has it: 128 + SIGPIPE
MUCH = 2 << 30  # bytes of a GPU: less than that is its context, and what a screen needs


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Run a command: messages for errors, silence for a reader that has closed the pipe."""
    try:
        yield
        sys.stdout.flush()  # a closed pipe may show only now
    except BrokenPipeError:
        _drop_output()
        raise SystemExit(CLOSED_PIPE) from None
    except KeyboardInterrupt as error:
        _end("homing: interrupted", interrupts.exit_code(error))
    except HomingError as error:
        if _debugging():
            raise
        _end(f"homing: {error}", BAD_INPUT)
    except Exception as error:
        if _debugging() or interrupts.received():
            raise
        _end(_message(error), BAD_INPUT if getattr(error, "errno", None) == errno.ENAMETOOLONG else FAILED)


def _debugging() -> bool:
    return os.environ.get(DEBUG, "") not in ("", "0")


def _end(message: str, code: int) -> None:
    with contextlib.suppress(BrokenPipeError):
        print(message, file=sys.stderr)
    raise SystemExit(code) from None


def _message(error: Exception) -> str:
    """What a person can do about an error that no code of ours raised."""
    first = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"homing: {shown(str(error.filename))}: {error.strerror}; choose another place or name"
    on_device = "RESOURCE_EXHAUSTED" in str(error)
    if isinstance(error, MemoryError) or on_device:
        lower = "lower num_envs, seeds, episodes or the size of the networks"
        return f"homing: out of memory ({first}); {lower}{_other_programs() if on_device else ''}"
    where = _write_traceback(error)
    return (
        f"homing: unexpected error: {type(error).__name__}: {first}; please report it, {where} "
        f"({DEBUG}=1 shows it here)"
    )


def _other_programs() -> str:
    """What other programs hold of the GPU, where that is much: it may be them that leave too little."""
    from homing.system import hardware

    with contextlib.suppress(Exception):  # another error must not hide the first
        held = hardware.held_by_others()
        if held is not None and held > MUCH:
            return f", or wait for other programs, which hold {held / 2**30:.0f} GiB of this GPU"
    return ""


def _write_traceback(error: Exception) -> str:
    """Keep the traceback in a temporary file and say where."""
    text = f"homing {' '.join(sys.argv[1:])}\n\n" + "".join(traceback.format_exception(error))
    try:
        with tempfile.NamedTemporaryFile("w", prefix="homing-error-", suffix=".txt", delete=False) as file:
            file.write(text)
        return f"traceback in {Path(file.name)}"
    except OSError:
        return "the traceback could not be written"


def _drop_output() -> None:
    """Send what is still buffered nowhere, or Python complains about the pipe once more at its exit."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
