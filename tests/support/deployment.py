"""Masters with the settings of deploy/, and its two users."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from support.waiting import PATIENT

from redlock_fast import FastRedlock
from redlock_fast.embedded import Masters, find_server

DEPLOY = Path(__file__).parents[2] / "deploy"
VALKEY = DEPLOY / "valkey"
#: Where the containers have them.
DATA, SECRETS = "/data", "/run/secrets/redlock"


class Deployed:
    """``masters``: real ones, started with deploy/valkey/valkey.conf, where only paths differ and ports."""

    def __init__(self, server: str, masters: Masters, secrets: Path, stack: ExitStack) -> None:
        self.server = server
        self.masters = masters
        self.secrets = secrets
        self._stack = stack

    def password(self, user: str) -> str:
        return (self.secrets / f"{user}-password").read_text().strip()

    def urls(self, user: str = "redlock") -> list[str]:
        login = f"{user}:{self.password(user)}"
        return [f"redis://{login}@127.0.0.1:{master.port}" for master in self.masters]

    def nodes(self, user: str) -> list[redis.Redis]:
        """A connection of this user to each, for as long as the masters run."""
        made = [redis.Redis.from_url(url) for url in self.urls(user)]
        for node in made:
            self._stack.callback(node.close)
        return made

    def client(self, **options: Any) -> FastRedlock:
        """As a service has it, with all masters connected."""
        return FastRedlock(
            self.urls(), **{"ttl": 30.0, "decide": "all", "check_masters": "auto", **PATIENT, **options}
        )


def version_of(server: str) -> str:
    """What its binary says."""
    return subprocess.check_output([find_server(server), "--version"], text=True)


def make_secrets(folder: Path, server: str = "valkey") -> None:
    missing = [tool for tool in ("awk", "od", "sed", "tr") if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"make-secrets.sh needs {', '.join(missing)}")
    subprocess.run([VALKEY / "make-secrets.sh", folder], check=True, timeout=60)
    if server == "redis":  # as users.acl says
        users = (folder / "users.acl").read_text().replace(" +delifeq", "")
        if "v=7.0." in version_of(server):
            users = users.replace(" +client|setinfo", "")
        (folder / "users.acl").write_text(users)


@contextmanager
def deployed(server: str, folder: Path, count: int = 3) -> Iterator[Deployed]:
    """So many masters of ``server``, with what they need in ``folder``."""
    secrets, config = folder / "secrets", folder / "valkey.conf"
    make_secrets(secrets, server)
    text = (VALKEY / "valkey.conf").read_text()
    assert DATA in text
    assert SECRETS in text
    if "v=6." in version_of(server):
        text = re.sub(r"(?m)^enable-.*", "", text)  # Redis 6.2 has nothing of it to be forbidden
    config.write_text(text.replace(DATA, ".").replace(SECRETS, str(secrets)))
    here = ("--include", str(config), "--port", "{port}", "--bind", "127.0.0.1")
    with ExitStack() as stack:
        masters = stack.enter_context(Masters(count, server=server, options=here))
        yield Deployed(server, masters, secrets, stack)
