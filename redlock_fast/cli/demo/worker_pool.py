"""Starts the worker processes of the demo, and collects their messages."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, Self

from ...errors import RedlockError

START_TIMEOUT = 60.0
END_TIMEOUT = 30.0


class WorkerPool:
    """The worker processes, as a context manager that leaves none behind.

    A thread for each reads its messages. All workers start together, with :meth:`go`.
    """

    def __init__(self, workers: int, *, urls: Sequence[str], **setting: Any) -> None:
        self.results: list[dict[str, Any]] = []
        # Ctrl-C may interrupt a SimpleQueue anywhere. An interrupted Queue may unlock a reader's mutex.
        self._messages: queue.SimpleQueue[tuple[int, dict[str, Any]]] = queue.SimpleQueue()
        self._cycles = [0] * workers
        self._ready = 0
        self._deadline = time.monotonic() + START_TIMEOUT
        self._seconds: float = setting["seconds"]
        self._processes: list[subprocess.Popen[str]] = []
        self._readers: list[threading.Thread] = []
        # URLs have passwords, and all users of this machine can see arguments: URLs go to stdin.
        self._urls = json.dumps(list(urls))
        self._command = [sys.executable, "-m", f"{__package__}.worker", json.dumps(setting)]

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as failed:
            failed.callback(self.__exit__)
            for number in range(len(self._cycles)):
                process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    start_new_session=True,  # Ctrl-C reaches this process only, which ends them
                )
                self._processes.append(process)
                _send_line(process, self._urls)
                self._readers.append(threading.Thread(target=self._read, args=(number, process), daemon=True))
                self._readers[-1].start()
            while self._ready < len(self._processes):
                self.listen()
            failed.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
        for process, reader in zip(self._processes, self._readers, strict=False):
            reader.join()
            with contextlib.suppress(BrokenPipeError), process:  # closes the pipes and waits
                pass

    @property
    def cycles(self) -> int:
        return sum(self._cycles)

    @property
    def working(self) -> bool:
        return len(self.results) < len(self._processes)

    def go(self) -> float:
        """Start all workers; returns the time."""
        for process in self._processes:
            _send_line(process, "")
        self._deadline = time.monotonic() + self._seconds + END_TIMEOUT
        return time.monotonic()

    def listen(self, seconds: float = 0.05) -> None:
        """Wait for a message, at most ``seconds``; raises RedlockError if a worker failed."""
        if time.monotonic() > self._deadline:
            raise RedlockError("a worker of the demo does not come to its end")
        with contextlib.suppress(queue.Empty):
            number, message = self._messages.get(timeout=seconds)
            self._cycles[number] = message.get("cycles", self._cycles[number])
            self._ready += "ready" in message
            if "result" in message:
                self.results.append(message["result"])
            if "failed" in message:
                raise RedlockError("a worker of the demo failed; what it said is above")

    def _read(self, number: int, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        done = False
        for line in process.stdout:
            message = json.loads(line)
            done |= "result" in message
            self._messages.put((number, message))
        if not done:
            self._messages.put((number, {"failed": True}))


def _send_line(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # the reader reports the failure
        process.stdin.write(f"{line}\n")
        process.stdin.flush()
