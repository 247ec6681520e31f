"""The callers of one library that want one lock, each in a process of its own.

    python callers.py '{"library": "pottery", "urls": [...], "processes": 8, "hold": 1.0}'

As a program it runs in the environment of that library, and imports nothing else but the standard library. It
says "ready" when the library is imported, reads the window, and prints what each process measured.
contention.py starts it, and uses its functions for redlock-fast.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import libraries

KEY = "contended"


class Window(NamedTuple):
    """When all begin, and between which moments (``time.monotonic``) grants count."""

    start: float
    begin: float
    end: float


class Part(NamedTuple):
    """What one process measured: the grants of each of its clients, all waits, its processor time."""

    grants: list[int]
    waits: list[float]
    cpu: float


def cpu_time() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def contend(
    acquire: Callable[[float], Any], release: Callable[[Any], Any], hold: float, window: Window
) -> Part:
    """Acquire, hold for ``hold`` milliseconds, release, and again.

    ``acquire(seconds)``: false when the time has ended. ``release``: gets what ``acquire`` returned.
    """
    grants, waits, cpu = 0, list[float](), 0.0
    time.sleep(max(0.0, window.start - time.monotonic()))
    while (asked := time.monotonic()) < window.end:
        cpu = cpu or (cpu_time() if asked >= window.begin else 0.0)
        held = acquire(window.end + 1.0 - asked)
        if not held:
            waits.append(time.monotonic() - max(asked, window.begin))
            break
        if window.begin <= (granted := time.monotonic()) < window.end:
            grants += 1
            waits.append(granted - asked)
        if hold:
            time.sleep(hold / 1e3)
        release(held)
    return Part([grants], waits, cpu_time() - cpu)


def caller(library: str, urls: list[str], hold: float, window: Window) -> Part:
    """One caller of another library, which waits in its own way, and is asked again until it has the lock."""
    with libraries.THREADS[library](urls) as opened:

        def acquire(seconds: float) -> Any:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                with suppress(Exception):  # also how some of them report that the lock is taken
                    if held := opened.acquire(KEY):
                        return held
            return None

        def release(held: Any) -> None:
            with suppress(Exception):  # its own complaint: it may have lost the lock
                opened.release(held)

        return contend(acquire, release, hold, window)


# --- processes ------------------------------------------------------------------------------------------


def work(pipe: Any, run: Callable[..., Part], *args: Any) -> None:
    try:
        pipe.send(run(*args))
    except BaseException as error:
        pipe.send(error)
        raise


@contextmanager
def started(runs: list[tuple[Any, ...]]) -> Iterator[list[Any]]:
    """Children of fork, because a hundred interpreters would take a minute to start."""
    fork = multiprocessing.get_context("fork")
    pipes, children = [], []
    for run in runs:
        ours, theirs = fork.Pipe(duplex=False)
        child = fork.Process(target=work, args=(theirs, *run), daemon=True)
        child.start()
        theirs.close()
        pipes.append(ours)
        children.append(child)
    try:
        yield pipes
    finally:
        for child in children:
            child.join(10)
            child.kill()
            child.join()


def received(pipes: list[Any]) -> list[Part]:
    """What all children measured. Raises what one of them raised."""
    parts = [pipe.recv() for pipe in pipes]
    for failure in parts:
        if isinstance(failure, BaseException):
            raise failure
    return parts


def main() -> None:
    job = json.loads(sys.argv[1])
    with libraries.THREADS[job["library"]](job["urls"]):
        print("ready", flush=True)
    window = Window(*json.loads(sys.stdin.readline()))
    run = caller, job["library"], job["urls"], job["hold"], window
    with started([run] * job["processes"]) as pipes:
        json.dump(received(pipes), sys.stdout)


if __name__ == "__main__":
    main()
