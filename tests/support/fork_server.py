"""A process that has imported what most programs of the tests need, and forks a child for each of them.

``python fork_server.py FD ROOT``: reads requests from this socket, and ends with it; ROOT has the package. A
child continues as an interpreter that was started with the request's arguments, see ``python_process.py``.
"""

from __future__ import annotations

import builtins
import contextlib
import faulthandler
import fcntl
import gc
import importlib
import io
import json
import os
import runpy
import select
import signal
import socket
import struct
import sys
import termios
import types
from typing import Any

#: Where one is missing, programs that need it fail as usual.
PRELOADED = (
    "asyncio", "concurrent.futures.thread", "ctypes", "email.parser", "encodings.idna", "logging",
    "redis", "rich.console", "rich.live", "rich.table",
    "redlock_fast", "redlock_fast.aio", "redlock_fast.embedded", "redlock_fast.engine._native",
    "redlock_fast.engine.pure.engine", "redlock_fast.cli.break_lock",
    "redlock_fast.cli.execute", "redlock_fast.cli.lead", "redlock_fast.cli.locks",
    "redlock_fast.cli.masters.run", "redlock_fast.cli.status", "redlock_fast.cli.top",
)  # fmt: skip
INT = struct.Struct("i")


def receive(control: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """The next request, and its descriptors: stdin, stdout, stderr, and where to write of the child."""
    head, fds, _, _ = socket.recv_fds(control, INT.size, 4)
    if not head:
        return None
    body = bytearray()
    while len(body) < INT.unpack(head)[0]:
        body += control.recv(INT.unpack(head)[0] - len(body))
    return json.loads(body), fds


def serve(control: socket.socket) -> dict[str, Any]:
    """Fork for each request. Returns in the children only, with the request."""
    children: dict[int, socket.socket] = {}
    signalled, wakeup = socket.socketpair()
    wakeup.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakeup.fileno(), warn_on_full_buffer=False)
    while True:
        ready, _, _ = select.select([control, signalled], [], [])
        if signalled in ready:
            signalled.recv(1 << 12)
            report_ended(children)
        if control in ready:
            received = receive(control)
            if received is None:
                sys.exit()
            request, (*standard, report) = received
            parent = socket.socket(fileno=report)
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                for one in (control, signalled, wakeup, parent, *children.values()):
                    one.close()
                set_up(request, standard)
                return request
            children[pid] = parent
            parent.sendall(INT.pack(pid))
            for fd in standard:
                os.close(fd)


def report_ended(children: dict[int, socket.socket]) -> None:
    """Write the wait status of each child that has ended."""
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        with children.pop(pid) as parent, contextlib.suppress(OSError):  # it may have forgotten the child
            parent.sendall(INT.pack(status))


# --- in a child ----------------------------------------------------------------------------------------


def set_up(request: dict[str, Any], standard: list[int]) -> None:
    """What the system and the interpreter do at a start."""
    for number, fd in enumerate(standard):
        os.dup2(fd, number)
        os.close(fd)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if request["new_session"]:
        os.setsid()
    if request["terminal"]:
        take_terminal()
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.stdin, sys.stdout, sys.stderr = sys.__stdin__, sys.__stdout__, sys.__stderr__ = [
        open_standard(fd, stream) for fd, stream in enumerate((sys.stdin, sys.stdout, sys.stderr))
    ]
    if os.environ.get("PYTHONFAULTHANDLER"):
        faulthandler.enable()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def take_terminal() -> None:
    """Stdin becomes the terminal of this session."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def open_standard(fd: int, like: Any) -> io.TextIOWrapper:
    """As the interpreter does; ``like`` is that of the server."""
    buffered = not like.write_through
    raw = io.FileIO(fd, "w" if fd else "r", closefd=False)
    raw.name = like.name
    file: Any = io.BufferedReader(raw) if not fd else io.BufferedWriter(raw) if buffered else raw
    lines = buffered and (fd == 2 or file.isatty())
    stream: Any = io.TextIOWrapper(file, like.encoding, like.errors, "\n", lines, not buffered)
    stream.mode = "w" if fd else "r"
    return stream  # type: ignore[no-any-return]


def run(arguments: list[str], installed: list[str]) -> None:
    """Run the program. ``installed``: the places on sys.path that no variable names."""
    paths = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    rest = list(dict.fromkeys([*map(os.path.abspath, paths), *installed]))
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    sys.orig_argv = [sys.executable, *arguments]
    what, *words = arguments
    if what == "-m":
        sys.argv, sys.path = ["-m", *words[1:]], [os.getcwd(), *rest]
        runpy._run_module_as_main(words[0])  # type: ignore[attr-defined]
        return
    if what == "-c":
        sys.argv, sys.path = ["-c", *words[1:]], ["", *rest]
        code = compile(words[0], "<string>", "exec", dont_inherit=True)
    else:
        sys.argv, sys.path = arguments, [os.path.dirname(os.path.realpath(what)), *rest]
        main.__file__ = what
        with io.open_code(what) as file:
            code = compile(file.read(), what, "exec", dont_inherit=True)
    exec(code, main.__dict__)


def main() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # a terminal sends it to this process, too
    fd, root = sys.argv[1:]
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    installed = [place for place in sys.path[1:] if place not in known]
    sys.path[0] = root
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # children share what is not written to
    request = serve(socket.socket(fileno=int(fd)))
    run(request["arguments"], installed)


if __name__ == "__main__":
    main()
