"""Candidates for one leadership, each a process, and what they wrote down."""

from __future__ import annotations

import contextlib
import itertools
import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from support.python_process import PythonProcess
from support.waiting import DEADLINE, eventually
from support.worker_leader import now

TESTS = Path(__file__).parents[1]
Event = dict[str, Any]


class Candidate:
    """One process. ``killed``: when it was, by the clock of all events."""

    def __init__(self, setting: dict[str, Any]) -> None:
        self.name: str = setting["identity"]
        self.killed: float | None = None
        self._process = PythonProcess(
            [sys.executable, "-m", "support.worker_leader", json.dumps(setting)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=TESTS,
        )

    def look(self) -> dict[str, bool]:
        """What ``is_leader`` is now, and whether the store then takes a write with the fencing token."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write("look\n")
        self._process.stdin.flush()
        reply: dict[str, bool] = json.loads(self._process.stdout.readline())
        return reply

    def stop(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(DEADLINE)
        self.killed = now()

    def leave(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        assert self._process.wait(DEADLINE) == 0

    def end(self) -> None:
        self._process.kill()
        self._process.__exit__(None, None, None)


class Election:
    """The candidates of a test, with one file of events."""

    def __init__(self, file: Path, **setting: Any) -> None:
        self._file = file
        self._setting = setting
        self.candidates: dict[str, Candidate] = {}

    def __enter__(self) -> Self:
        self._file.touch()
        return self

    def __exit__(self, *_: object) -> None:
        for candidate in self.candidates.values():
            with contextlib.suppress(OSError):
                candidate.end()

    def enter(self, name: str, urls: Sequence[str]) -> Candidate:
        """A new candidate."""
        setting = {**self._setting, "identity": name, "urls": list(urls), "file": str(self._file)}
        self.candidates[name] = Candidate(setting)
        return self.candidates[name]

    def events(self, what: str = "") -> list[Event]:
        """All events so far, or those of one kind, in the order of their times."""
        lines = [json.loads(line) for line in self._file.read_text().splitlines()]
        return sorted((one for one in lines if what in ("", one["what"])), key=lambda one: one["at"])

    def elected(self, count: int) -> Candidate:
        """Wait for election number ``count``. Returns the winner."""
        eventually(lambda: len(self.events("elected")) >= count, f"election {count}: {self.events()}")
        return self.candidates[self.events("elected")[count - 1]["candidate"]]

    def check(self) -> None:
        """At no instant two leaders; a loss was reported before the next election; fencing tokens rise."""
        terms = list(self._terms())
        for earlier, later in itertools.pairwise(terms):
            assert earlier["until"] < later["at"], (earlier, later, self.events())
        fences = [one["fence"] for one in self.events("elected")]
        assert fences == sorted(set(fences))
        assert not any(one["leads"] for one in self.events("lost"))

    def _terms(self) -> Iterator[Event]:
        """The times in which ``is_leader`` of one process was True."""
        events = self.events()
        for number, event in enumerate(events):
            if event["what"] == "leads":
                candidate = event["candidate"]
                ends = [one["at"] for one in events if one["candidate"] == candidate and one["what"] == "led"]
                ends = [at for at in ends if at >= event["at"]]
                killed = self.candidates[candidate].killed
                yield {**event, "until": min([*ends, killed or events[-1]["at"]]), "number": number}
