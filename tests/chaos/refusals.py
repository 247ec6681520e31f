"""Masters that answer and refuse: each by a real setting of the server, but for LOADING.

Each is a context manager that hurts one master; it yields what the master answers to a SET then,
"" where only new connections are refused, or nothing is.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import redis
from chaos.environment import Environment
from support.waiting import eventually


@contextlib.contextmanager
def loading(environment: Environment, n: int) -> Iterator[str]:
    """The network answers in place of the master: a server with so little data loads at once."""
    environment.networks[n].error = b"LOADING Redis is loading the dataset in memory"
    yield ""
    environment.networks[n].error = b""


@contextlib.contextmanager
def oom(environment: Environment, n: int) -> Iterator[str]:
    with environment.setting(n, "maxmemory", 1, 0):
        yield "used memory"


@contextlib.contextmanager
def noreplicas(environment: Environment, n: int) -> Iterator[str]:
    with environment.setting(n, "min-replicas-to-write", 1, 0):
        yield "good replicas"


@contextlib.contextmanager
def readonly(environment: Environment, n: int) -> Iterator[str]:
    """It is the replica of an address without a server."""
    environment.nodes[n].replicaof("127.0.0.1", "1")
    try:
        yield "read only"
    finally:
        environment.nodes[n].replicaof("NO", "ONE")


@contextlib.contextmanager
def noperm(environment: Environment, n: int) -> Iterator[str]:
    environment.nodes[n].acl_setuser("default", enabled=True, commands=["-set"], categories=["+@all"])
    try:
        yield "no permissions"
    finally:
        environment.nodes[n].acl_setuser("default", enabled=True, categories=["+@all"])


@contextlib.contextmanager
def busy(environment: Environment, n: int) -> Iterator[str]:
    """A script without an end."""
    path = environment.masters[n].socket_path

    def spin() -> None:
        with (
            redis.Redis(unix_socket_path=path, socket_timeout=60, protocol=2) as node,
            contextlib.suppress(redis.RedisError),
        ):
            node.eval("while true do end", 0)

    with environment.setting(n, "lua-time-limit", 20, 5000):
        thread = threading.Thread(target=spin)
        thread.start()
        try:
            yield "busy"
        finally:
            eventually(lambda: _killed(environment.nodes[n], thread), "the script ends")


def _killed(node: redis.Redis, script: threading.Thread) -> bool:
    with contextlib.suppress(redis.RedisError):
        node.script_kill()
    script.join(0.01)
    return not script.is_alive()


@contextlib.contextmanager
def noauth(environment: Environment, n: int) -> Iterator[str]:
    """New connections need a password."""
    with environment.setting(n, "requirepass", "secret", ""):
        environment.networks[n].cut()
        yield ""


@contextlib.contextmanager
def maxclients(environment: Environment, n: int) -> Iterator[str]:
    with environment.setting(n, "maxclients", 1, 1000):
        environment.networks[n].cut()
        yield ""


@contextlib.contextmanager
def noscript(environment: Environment, n: int) -> Iterator[str]:
    environment.nodes[n].script_flush()
    yield ""


REFUSALS = (loading, oom, noreplicas, readonly, noperm, busy, noauth, maxclients, noscript)


def refuses(node: redis.Redis, text: str) -> bool:
    """Asked of the master itself, not by way of the network."""
    try:
        node.set("probe", "x", px=1)
    except redis.RedisError as error:
        return text in str(error)
    return False
