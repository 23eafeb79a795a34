"""Scripts in processes of their own that need not import JAX first: each is forked off a server that has.

Run as a script, this is the server: `forked.py SOCKET MODULE…` imports the modules and answers at a socket. It
computes nothing and starts no threads, so a fork of it is a process that has come as far and no further.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import IO


class Server:
    """It ends with this process.

    modules: what is imported once
    env: changed variables, in the server and in all that is forked off it
    """

    def __init__(self, *modules: str, env: dict[str, str]):
        self._socket, theirs = socket.socketpair()
        line = [sys.executable, __file__, str(theirs.fileno()), *modules]
        self._process = subprocess.Popen(line, env=os.environ | env, pass_fds=[theirs.fileno()])
        theirs.close()

    def start(
        self,
        script: Path,
        *args: object,
        cwd: Path,
        env: dict[str, str] | None = None,
        errors: IO[str] | None = None,
    ) -> Forked:
        """`python script args…`, with further variables changed.

        errors: a file for what is printed there; by default among the output
        """
        request = {"args": [str(script), *map(str, args)], "cwd": str(cwd), "env": env or {}}
        (out, their_out), (news, their_news) = os.pipe(), os.pipe()
        files = [their_out, errors.fileno() if errors else their_out, their_news]
        socket.send_fds(self._socket, [json.dumps(request).encode()], files)
        os.close(their_out)
        os.close(their_news)
        return Forked(out, news)


class Forked:
    """As much of `subprocess.Popen` as tests use."""

    def __init__(self, out: int, news: int):
        """out, news: where to read what it says, and its id and exit code."""
        self._out, self._news = out, news
        self.returncode: int | None = None
        self.pid = self._number(None)

    @staticmethod
    def _read(file: int, size: int, timeout: float | None) -> bytes:
        if not select.select([file], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("a forked process", timeout or 0)
        return os.read(file, size)

    def _number(self, timeout: float | None) -> int:
        number = self._read(self._news, 4, timeout)
        assert number, "the server has ended"
        return int.from_bytes(number, "big", signed=True)

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self.returncode = self._number(timeout)
            os.close(self._news)
        return self.returncode

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        said = b""
        while part := self._read(self._out, 2**16, timeout):
            said += part
        os.close(self._out)
        self.wait(timeout)
        return said.decode(), None

    def send_signal(self, signum: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, signum)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def serve(asked: socket.socket) -> str:
    """Fork at each request; returns in a process that was asked for, with the script that it shall run."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        line, files, *_ = socket.recv_fds(asked, 2**16, 3)
        if not line:
            os._exit(0)
        if os.fork() == 0:
            break
        for file in files:
            os.close(file)
    # Only a parent can wait: between the server and the process asked for is one that does.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    asked.close()
    out, errors, news = files
    if pid := os.fork():
        os.close(out)
        os.close(errors)
        os.write(news, pid.to_bytes(4, "big", signed=True))
        _, status = os.waitpid(pid, 0)
        os.write(news, os.waitstatus_to_exitcode(status).to_bytes(4, "big", signed=True))
        os._exit(0)
    os.close(news)
    for file, standard in ((out, 1), (errors, 2)):
        os.dup2(file, standard)
        os.close(file)
    request = json.loads(line)
    os.chdir(request["cwd"])
    os.environ.update(request["env"])
    sys.argv = request["args"]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    return sys.argv[0]


if __name__ == "__main__":
    for module in sys.argv[2:]:
        importlib.import_module(module)
    runpy.run_path(serve(socket.socket(fileno=int(sys.argv[1]))), run_name="__main__")
