"""The worker processes of one run, from outside."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from support.python_process import PythonProcess

TESTS = Path(__file__).parents[1]
#: Seconds. A worker says each of its words within this time, or it is stuck.
STUCK = 120.0


class Worker:
    """One process; ``name`` is its journal's."""

    def __init__(
        self, name: str, setting: dict[str, Any], environment: dict[str, str], module: str = "chaos.worker"
    ) -> None:
        self.name = name
        self.history = Path(setting["journal"])
        self.result: dict[str, Any] = {}
        path = os.pathsep.join([str(TESTS.parent), str(TESTS)])
        self._process = PythonProcess(
            [sys.executable, "-m", module, json.dumps({"name": name, **setting})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path, **environment},
        )
        self._words: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def tell(self, word: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f"{word}\n")
            self._process.stdin.flush()

    def hear(self) -> str:
        """Its next word; "" if it died."""
        try:
            return self._words.get(timeout=STUCK)
        except queue.Empty:
            return ""

    def stop(self) -> None:
        """SIGSTOP."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def last(self) -> str:
        """What it did last."""
        tail = self.history.read_bytes()[-1000:].split(b"\n")
        return str(json.loads(tail[-2])["what"]) if len(tail) > 2 else ""

    def finish(self) -> bool:
        """Its last words, and a clean exit."""
        with contextlib.suppress(ValueError):
            self.result = json.loads(self.hear())
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STUCK)
        return self._process.returncode == 0 and bool(self.result)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._words.put(line.strip())
        self._words.put("")
