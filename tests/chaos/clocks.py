"""Wall clocks that can be set: of worker processes and of masters, by the shim in ``shim.c``."""

from __future__ import annotations

import mmap
import os
import shutil
import subprocess
from pathlib import Path

from redlock_fast.embedded import find_server

SOURCE = Path(__file__).with_name("shim.c")
COMPILER = shutil.which("cc") or shutil.which("gcc")


def build(folder: Path) -> Path:
    """Compile the shim."""
    assert COMPILER is not None
    library = folder / "shim.so"
    command = [COMPILER, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(library), str(SOURCE)]
    subprocess.run(command, check=True)
    return library


class WallClock:
    """The wall clock of every process that was started with ``environment``."""

    def __init__(self, shim: Path, path: Path) -> None:
        self.environment = {"LD_PRELOAD": str(shim), "CHAOS_CLOCK": str(path)}
        self.moved = 0.0
        if not path.exists():
            path.write_bytes(bytes(8))
        with open(path, "r+b") as file:
            self._page = mmap.mmap(file.fileno(), 8)

    def move(self, seconds: float) -> None:
        """Forward, or back."""
        self.moved += seconds
        self._page[:] = round(self.moved * 1e9).to_bytes(8, "little", signed=True)


def wrapped_server(server: str, shim: Path, folder: Path) -> str:
    """A program that starts ``server`` with a clock of its own: the file ``clock`` where it runs."""
    program = folder / f"{server}-with-clock"
    program.write_text(
        "#!/bin/sh\n"
        "[ -s clock ] || printf '\\0\\0\\0\\0\\0\\0\\0\\0' > clock\n"
        f'LD_PRELOAD="{shim}" CHAOS_CLOCK="$PWD/clock" exec "{find_server(server)}" "$@"\n'
    )
    os.chmod(program, 0o755)
    return str(program)
