"""Beside gevent a client waits in its own greenlet, and all promises hold. Each test is a process."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from support.certificates import Certificates
from support.keys import sizes
from support.thorough import amount
from support.waiting import PROCESS_DEADLINE, eventually

from redlock_fast.embedded import Masters

pytestmark = pytest.mark.skipif(find_spec("gevent") is None, reason="gevent (pip install gevent) is missing")

WORKER = Path(__file__).parents[2] / "support" / "worker_gevent.py"

ORDERS = ["patched first", "imported first"]


def run(what: str, masters: Masters, order: str = "patched first", ca: str = "") -> Any:
    """``ca``: the certificate of the authority, if the masters have TLS."""
    urls = [url.replace("redis:", "rediss:") + f"?ssl_ca_certs={ca}" if ca else url for url in masters.urls]
    command = [sys.executable, str(WORKER), what, order, *urls]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PROCESS_DEADLINE)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_other_greenlets_run_while_one_waits(valkey: Masters) -> None:
    """Catches: the native engine, whose wait stops all greenlets of the thread."""
    seen = run("wait", valkey, "patched first")
    assert seen["got"] is False
    assert not seen["still"]
    assert seen["released"]


def test_locks_are_renewed_while_a_greenlet_waits(valkey: Masters) -> None:
    """Catches: a lock that is lost while another greenlet waits; signals that renewal blocks for all."""
    seen = run("renew", valkey, "imported first")
    assert seen == {
        "got": False,
        "kept": [True] * 5,
        "lost": [],
        "released": [True] * 5,
        "blocked": [],
    }


@pytest.mark.parametrize("order", ORDERS[: amount(1, 2, twice=2)])
def test_greenlets_take_turns(valkey: Masters, order: str) -> None:
    """Catches: two holders, because all greenlets of a thread have one ident, or one threading.local."""
    seen = run("turns", valkey, order)
    assert seen["most"] == {"plain": 1, "reentrant": 1}
    assert seen["done"] == {"plain": 60, "reentrant": 30}


def test_tls(tls_server: str, authority: Certificates) -> None:
    """Catches: the methods of a TLS socket that gevent's socket calls for its own."""
    with Masters(3, server=tls_server, options=authority.server_options()) as masters:
        seen = run("turns", masters, ca=authority.path("ca.crt"))
    assert seen["most"] == {"plain": 1, "reentrant": 1}


@pytest.mark.parametrize("order", ORDERS[amount(1, 0, twice=0) :])
def test_child_of_fork_ends_the_calls_of_its_parent(valkey: Masters, order: str) -> None:
    """Catches: a copy of a greenlet that releases, or gets, what its parent asked for."""
    seen = run("fork", valkey, order)
    assert seen["codes"]
    assert not any(seen["codes"])
    assert seen["released"] == [True, True]
    assert seen["ends"] == ["got True"] * 2
    assert seen["faults"] == [0] * 5
    assert seen["then"] == [True, True]
    eventually(lambda: sizes(valkey) == [0] * 5, "no key is left")


def test_the_end_of_the_process_releases(valkey: Masters) -> None:
    assert run("leave", valkey) == {"engine": "python", "held": True}
    assert sizes(valkey) == [0] * 5


def test_asyncio_beside_gevent_is_refused(valkey: Masters) -> None:
    printed = run("loop", valkey)
    assert printed == "gevent removes epoll and kqueue, and asyncio clients need one: use FastRedlock"


def test_a_worker_of_gunicorn_that_patches_after_its_client_was_made(tmp_path: Path, valkey: Masters) -> None:
    """Catches: a server that starts, and then answers each request with the ConfigError."""
    pytest.importorskip("gunicorn", reason="gunicorn is not installed: pip install -e '.[integrations-test]'")
    (tmp_path / "shop.py").write_text(
        f"import redlock_fast\nclient = redlock_fast.FastRedlock({valkey.urls!r})\napplication = print\n"
    )
    options = ["--preload", "-k", "gevent", "--bind", f"unix:{tmp_path / 'http'}"]
    command = [sys.executable, "-m", "gunicorn", *options, "shop:application"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PROCESS_DEADLINE)
    assert done.returncode == 3, done.stderr
    assert "ConfigError: gevent patched threads after this client was made" in done.stderr
