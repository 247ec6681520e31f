"""Masters far away: a TCP delay line in C, in a process of its own.

    python benchmarks/delay.py 6379:0.2 6380:80     server port : round trip in ms

Most containers have no netem. Each direction takes half the round trip. Bytes stay in order, and their
number on the way is not limited.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

SOURCE = Path(__file__).with_name("delay.c")


@contextlib.contextmanager
def delayed(routes: Sequence[tuple[int, float]]) -> Iterator[list[int]]:
    """Yield a port on 127.0.0.1 for each server port and round trip (seconds)."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise SystemExit("a C compiler is needed for the delay line: set CC, or install gcc or clang")
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/delay"
        subprocess.run([compiler, "-O2", "-o", program, str(SOURCE)], check=True)
        arguments = [f"{port}:{round(seconds * 1e6)}" for port, seconds in routes]
        with subprocess.Popen(
            [program, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as line:
            assert line.stdout is not None
            yield [int(port) for port in line.stdout.readline().split()]
            line.communicate()  # the process ends with its input, also when this process ends


def main() -> None:
    routes = [(int(port), float(ms) / 1000) for port, _, ms in (one.partition(":") for one in sys.argv[1:])]
    with delayed(routes) as ports:
        for (server, seconds), port in zip(routes, ports, strict=True):
            print(f"127.0.0.1:{port} -> 127.0.0.1:{server}, {seconds * 1000:g} ms")
        with contextlib.suppress(KeyboardInterrupt):
            sys.stdin.read()


if __name__ == "__main__":
    main()
