"""A command on a real terminal: a pty, and an emulator that knows what its screen shows."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator, Sequence
from io import FileIO
from typing import Any

import pyte
from support.fork_server import take_terminal
from support.python_process import PythonProcess
from support.waiting import DEADLINE, eventually


class Terminal:
    """``process``: the command. ``output``: all bytes that it has written."""

    def __init__(self, process: subprocess.Popen[bytes], ours: FileIO, theirs: FileIO, columns: int) -> None:
        self.process = process
        self.output = b""
        self.modes = modes_of_new_terminal()  # the process may have changed those of its own by now
        self._ours, self._theirs = ours, theirs
        self._screen = pyte.Screen(columns, LINES)
        self._stream = pyte.ByteStream(self._screen)
        self._mutex = threading.Lock()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # the other side is closed
            while data := os.read(self._ours.fileno(), 65536):
                with self._mutex:
                    self.output += data
                    self._stream.feed(data)

    def lines(self) -> list[str]:
        """What the screen shows, without empty lines."""
        with self._mutex:
            return [line.rstrip() for line in self._screen.display if line.strip()]

    def shows(self, text: str) -> None:
        """Waits until a line has ``text``."""
        eventually(lambda: text in self.text(), f"{text!r} is on the screen")

    def shows_no(self, text: str) -> None:
        eventually(lambda: text not in self.text(), f"{text!r} is gone")

    def text(self) -> str:
        return "\n".join(self.lines())

    def press(self, key: bytes) -> None:
        self._ours.write(key)

    def resize(self, columns: int) -> None:
        with self._mutex:
            self._screen.resize(LINES, columns)
        set_size(self._theirs, columns)

    def ends(self) -> int:
        """The exit code. The terminal is as it was before: its modes, its cursor, its first screen."""
        code = self.process.wait(3 * DEADLINE)
        assert termios.tcgetattr(self._theirs) == self.modes
        self._theirs.close()
        self._reader.join(DEADLINE)
        for on, off in ((b"\x1b[?1049h", b"\x1b[?1049l"), (b"\x1b[?25l", b"\x1b[?25h")):
            assert self.output.rfind(off) >= self.output.rfind(on), "the first screen and its cursor are back"
        return code

    def close(self) -> None:
        """End the command, and the thread that reads: only then may its file be closed."""
        self.process.kill()
        self.process.wait()
        self._theirs.close()
        self._reader.join(DEADLINE)


LINES = 40


def modes_of_new_terminal() -> list[Any]:
    ours, theirs = pty.openpty()
    try:
        return termios.tcgetattr(theirs)
    finally:
        os.close(ours)
        os.close(theirs)


def set_size(terminal: FileIO, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, columns, 0, 0))


@contextlib.contextmanager
def on_terminal(
    *arguments: str,
    environment: dict[str, Any],
    columns: int = 80,
    program: Sequence[str] = ("-m", "redlock_fast"),
) -> Iterator[Terminal]:
    """Python with these arguments, as the leader of a session on a terminal of its own."""
    environment = {**environment, "TERM": "xterm-256color"}
    with spawn([*program, *arguments], environment, columns) as (process, ours, theirs):
        terminal = Terminal(process, ours, theirs, columns)
        try:
            yield terminal
        finally:
            terminal.close()


@contextlib.contextmanager
def spawn(
    arguments: Sequence[str], environment: dict[str, Any], columns: int = 80
) -> Iterator[tuple[subprocess.Popen[bytes], FileIO, FileIO]]:
    """Python with these arguments, and both ends of its terminal. All are closed at the end."""
    ours, theirs = (FileIO(end, "r+") for end in pty.openpty())
    set_size(theirs, columns)
    process = PythonProcess(
        [sys.executable, *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=take_terminal,
        env=environment,
    )
    try:
        yield process, ours, theirs
    finally:
        process.kill()
        process.wait()
        ours.close()
        theirs.close()
