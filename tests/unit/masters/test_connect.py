"""A connection to a master: protocol, marker, and what becomes of errors."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from redis.exceptions import AuthenticationError, NoPermissionError, ResponseError

from redlock_fast.masters import connect as module
from redlock_fast.masters.address import Target
from redlock_fast.masters.bounded_socket import Pushed
from redlock_fast.masters.connect import acknowledgement, connect
from redlock_fast.masters.connect_errors import MAX_TEXT, error_text
from redlock_fast.masters.probe import ConnectError, Flushed, Refused, Server
from redlock_fast.masters.restart_guard import Guard
from redlock_fast.masters.settings import ConnectorSettings
from redlock_fast.wire.dialect import NO_ACKNOWLEDGEMENT, Acknowledgement, dialect
from redlock_fast.wire.resp import ProtocolError

ENGINE: Any = None
OFF, MARKER = Guard("off", 60.0), Guard("marker", 60.0)


class Connection:
    """A connection of redis-py: it answers each command with the next of ``replies``, then with OK."""

    host, port = "host", 6379

    def __init__(self, protocol: int, fails: Exception | None, replies: list[Any]) -> None:
        self.protocol = protocol
        self.fails = fails
        self.replies = replies
        self.sent: list[tuple[Any, ...]] = []
        self.open = False
        self._sock: Any = None

    def _connect(self) -> socket.socket:
        raise NotImplementedError

    def connect(self) -> None:
        if self.fails is not None:
            raise self.fails
        self.open = True

    def disconnect(self) -> None:
        self.open = False

    def pack_commands(self, commands: Any) -> Any:
        return commands

    def send_packed_command(self, commands: Any, check_health: bool) -> None:
        self.sent += commands

    def read_response(self) -> Any:
        reply = self.replies.pop(0) if self.replies else b"OK"
        if isinstance(reply, Exception):
            raise reply
        return reply


class World:
    """``fails``: by protocol. ``server``: what a probe finds, or raises."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fails: dict[int, Exception] = {}
        self.replies: list[Any] = []
        self.server: Server | Exception = Server(run_id="a", witness=True)
        self.made: list[Connection] = []
        monkeypatch.setattr(module, "probe", self._probe)

    def _connection(self, timeout: float, protocol: int) -> Connection:
        self.made.append(Connection(protocol, self.fails.get(protocol), self.replies))
        return self.made[-1]

    def _probe(
        self, connection: Connection, protocol: int, key_prefix: bytes, of_cluster: bool = False
    ) -> Server:
        if isinstance(self.server, Exception):
            raise self.server
        return self.server._replace(protocol=protocol)

    def connect(
        self,
        guard: Guard = OFF,
        protocol: int | None = None,
        wait: str = "auto",
        known: Server | None = None,
        replicas: int = 0,
    ) -> Any:
        to = Target("host/0", ("host", 6379), self._connection, protocol)
        settings = ConnectorSettings(
            ENGINE, 0.05, 0.1, 5.0, b"", guard, wait, allow_split=False, replicas=replicas
        )
        return connect(to, settings, known)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_connected(world: World) -> None:
    probed = world.connect()
    assert (probed.server.protocol, probed.server.where, probed.server.can.push) == (3, ("host", 6379), True)
    assert not world.connect(wait="poll").server.can.push
    probed.close()
    assert not world.made[0].open


def test_the_wait_for_replicas(world: World) -> None:
    """Catches: a WAIT for which an attempt has no time, none at all, or one that is too long for others."""
    asked = {seconds: acknowledgement(2, seconds, b"p:").wait for seconds in (0.05, 0.5, 0.001, 60.0)}
    assert asked == {0.05: 16, 0.5: 166, 0.001: 1, 60.0: 1000}
    assert acknowledgement(2, 0.05, b"p:") == Acknowledgement(2, 16, b"p:redlock-fast:wait")
    assert acknowledgement(0, 0.05, b"p:") == NO_ACKNOWLEDGEMENT
    assert world.connect().dialect == dialect(world.connect().server.can)
    asks = world.connect(replicas=2).dialect
    assert [one.replicas for one in asks if one.replicas] == [2]


def test_resp2_where_there_is_no_hello(world: World) -> None:
    world.fails[3] = ResponseError("unknown command 'HELLO'")
    assert world.connect().server.protocol == 2
    with pytest.raises(ConnectError, match="unknown command"):
        world.connect(protocol=3)


@pytest.mark.parametrize(
    ("raised", "kind", "text"),
    [
        (AuthenticationError("invalid password"), Refused, "^invalid password$"),
        (AuthenticationError("Authentication required."), Refused, "^NOAUTH Authentication req"),
        (AuthenticationError("HELLO needs a client already authenticated"), Refused, "^NOAUTH HELLO"),
        (AuthenticationError("invalid username-password pair or user"), Refused, "^WRONGPASS invalid"),
        (AuthenticationError("Invalid Username or Password"), Refused, "^WRONGPASS Invalid"),
        (NoPermissionError("User a has no permissions to run 'set'"), Refused, "^NOPERM User a has no"),
        (Pushed("a push"), Flushed, "flushed while it was probed"),
        (ProtocolError("an unrequested reply"), ConnectError, "an unrequested reply"),
        (ConnectError("it is a replica"), ConnectError, "it is a replica"),
        (KeyError(), ConnectError, "KeyError"),
    ],
)
def test_errors(world: World, raised: Exception, kind: type[Exception], text: str) -> None:
    world.server = raised
    with pytest.raises(ConnectError, match=text) as error:
        world.connect()
    assert type(error.value) is kind
    assert not any(connection.open for connection in world.made)


def test_the_marker_is_checked(world: World) -> None:
    world.replies = [b"sha"] * 20
    with pytest.raises(ConnectError):  # the reply to the check is no number
        world.connect(MARKER)
    scripts = len([words for words in world.made[0].sent if words[0] == "SCRIPT"])
    world.replies[:] = [b"sha"] * scripts + [1500]
    assert world.connect(MARKER).server.guarded == 1.5
    world.replies[:] = [b"sha"] * scripts + [NoPermissionError("no")]
    with pytest.raises(Refused, match=r"^NOPERM no \(restart_guard='marker' needs its key"):
        world.connect(MARKER)


@pytest.mark.parametrize("known", [None, Server()])
def test_a_new_master_gets_a_marker_with_assume_fresh(world: World, known: Server | None) -> None:
    world.replies = [0] * 100
    world.connect(Guard("marker", 60.0, assume_fresh=True), known=known)
    assert any(words[0] == b"SET" for words in world.made[0].sent) is (known is None)


def test_values_of_keys(world: World) -> None:
    probed = world.connect()
    world.replies[:] = [b"value", 7, ResponseError("NOPERM no")]
    assert (probed.get(b"key", "0"), probed.get(b"key", "0")) == (b"value", None)
    with pytest.raises(ConnectError, match="NOPERM"):
        probed.put(b"key", b"value", 10, "0")


def test_values_of_keys_in_another_database(world: World) -> None:
    probed = world.connect()
    sent = world.made[0].sent
    before = len(sent)
    world.replies[:] = [b"OK", b"value", b"OK"]
    assert probed.get(b"key", "5") == b"value"
    assert sent[before:] == [("SELECT", "5"), (b"GET", b"key"), ("SELECT", "0")]
    world.replies[:] = [b"OK", b"OK", ResponseError("NOPERM no")]
    with pytest.raises(ConnectError, match="NOPERM"):
        probed.put(b"key", b"value", 10, "5")


def test_text_of_errors() -> None:
    assert error_text(ValueError()) == "ValueError"
    assert len(error_text(ValueError("x" * 2 * MAX_TEXT))) == MAX_TEXT
