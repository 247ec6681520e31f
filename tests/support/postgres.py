"""A PostgreSQL of the system, with a data folder of its own, on a unix socket."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.waiting import DEADLINE, eventually

#: Where Debian has them, beside PATH.
VERSIONS = Path("/usr/lib/postgresql")
FAST = (
    "fsync=off",
    "full_page_writes=off",
    "synchronous_commit=off",
    "shared_buffers=8MB",
    "max_connections=20",
)


def find(program: str) -> str:
    """The path of a program of PostgreSQL. Skips the test where there is none."""
    installed = sorted(VERSIONS.glob(f"*/bin/{program}"), key=lambda path: float(path.parts[-3]))
    found = shutil.which(program) or (str(installed[-1]) if installed else None)
    if found is None:
        pytest.skip("no PostgreSQL: apt install postgresql")
    return found


@contextmanager
def postgres() -> Iterator[str]:
    """The folder of its unix socket. The user and the database are ``postgres``, without a password."""
    initdb, server = find("initdb"), find("postgres")
    # It refuses to run as root.
    user: dict[str, Any] = (
        {"user": "nobody", "group": "nogroup", "extra_groups": []} if not os.getuid() else {}
    )
    with tempfile.TemporaryDirectory(prefix="redlock-fast-pg-", dir="/tmp") as folder:
        if user:
            shutil.chown(folder, user["user"])
        data = f"{folder}/data"
        log = Path(folder, "log")
        with log.open("wb") as out:
            options: dict[str, Any] = {"stdout": out, "stderr": out, "cwd": folder, **user}
            init = [
                initdb,
                "-D",
                data,
                "-U",
                "postgres",
                "-A",
                "trust",
                "-E",
                "UTF8",
                "--no-locale",
                "--no-sync",
            ]
            subprocess.run(init, check=True, **options)
            settings = [word for setting in FAST for word in ("-c", setting)]
            command = [server, "-D", data, "-k", folder, "-h", "", *settings]
            process = subprocess.Popen(command, start_new_session=True, **options)
        try:
            eventually(lambda: "ready to accept connections" in log.read_text(), "PostgreSQL starts")
            yield folder
        finally:
            process.send_signal(signal.SIGINT)  # ends connections, too
            process.wait(DEADLINE)
