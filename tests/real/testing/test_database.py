"""A master in memory answers as a real Valkey does: the same commands to both, and a look at their keys."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from real.wire.test_scripts import (
    EACH,
    NEAR,
    OWNERS,
    STEPS,
    TTLS,
    fair,
    multilock,
    plain,
    readwrite,
    semaphore,
)
from support.memory import MemoryFleet
from support.waiting import DEADLINE

from redlock_fast.embedded import Masters
from redlock_fast.engine.pure.template import Template
from redlock_fast.wire.commands import Command, Verb, bulk
from redlock_fast.wire.dialect import Capabilities, RestartMarker, dialect


@pytest.fixture(scope="module")
def server() -> Iterator[Masters]:
    with Masters(1, server="valkey") as masters:
        yield masters


@pytest.fixture
def nodes(server: Masters, valkey: MemoryFleet) -> Iterator[list[redis.Redis]]:
    """A client of the real master, and one of the master in memory."""
    paths = f"unix://{server[0].socket_path}", valkey[0].url
    passwords = server[0].url.partition("redis://:")[2].partition("@")[0], None
    made = [
        redis.Redis.from_url(path, password=word, protocol=2)
        for path, word in zip(paths, passwords, strict=True)
    ]
    made[0].flushall()
    yield made
    for node in made:
        node.close()


def answer(node: redis.Redis, *words: Any) -> Any:
    """The reply as it came; of an error, its first two words."""
    connection: Any = node.connection_pool.get_connection()
    try:
        connection.send_command(*words)
        return connection.read_response()
    except redis.exceptions.ResponseError as error:
        return type(error).__name__, str(error).split()[:2]
    finally:
        node.connection_pool.release(connection)


COMMANDS = (
    """
SET a 1|SET a 2 NX|SET b x XX|SET a 1 PX 100000 XX|SET a|SET a 1 NONSENSE|SET a 1 PX ten|GET a|GET none
INCR a|INCR new|SET s text|INCR s|SET big 9223372036854775807|INCR big|ZADD s 1 m|ZCARD s|ZSCORE s m
ZADD z 2 b 1 a 2 aa|ZADD z XX 9 none|ZADD z GT 1 b|ZADD z XX GT 3 b|ZADD z text m|ZADD z 1|ZADD z 0.5 half
ZRANGE z 0 -1 WITHSCORES|ZRANGE z -1 -1|ZRANGE z 5 9|ZRANGE z 0 -2|ZRANGE z 1 2 NONSENSE|ZRANGE none 0 -1
ZRANGEBYSCORE z -inf 1.5|ZRANGEBYSCORE z -inf +inf LIMIT 1 1|ZRANGEBYSCORE z 9 10|ZSCORE z b|ZSCORE z none
ZSCORE z half|ZRANK z aa|ZRANK z none|ZCARD z|ZCARD none|GET z|EXISTS a z none|TYPE a|TYPE z|TYPE none
GETRANGE s 0 2|GETRANGE s -2 -1|GETRANGE s 9 12|GETRANGE none 0 1|GETRANGE z 0 1|PTTL none|PTTL s
PEXPIRE s 50000 GT|PEXPIRE s 50000|PEXPIRE s 20000 GT|PEXPIRE s 90000 GT|PEXPIRE none 5|PEXPIRE s 5 WHEN
ZREM z a none|ZREMRANGEBYSCORE z -inf 2|ZREMRANGEBYSCORE z -inf 9|EXISTS z|ZREM z a|DEL a none|UNLINK new
SET a* 1|SET ab 1|SET a[b 1|KEYS a\\*|KEYS a[bx[]*|KEYS ?b|KEYS none*|SCAN 0 MATCH a\\* TYPE string|DBSIZE
DELIFEQ s other|DELIFEQ s text|DELIFEQ s text|DELIFEQ s|NOSUCH a|EVALSHA 0000 0|PING|SELECT 0
DEL a* ab a[b big|SCRIPT LOAD ++|CONFIG GET appendonly|CONFIG GET maxmemory
""".replace("\n", "|")
    .strip("|")
    .split("|")
)
SCRIPTS = [
    "return 2.9", "return false", "return true", "return nil", "return 'text'", "return {1,'two',{3}}",
    "return {err='MINE it is'}", "return {ok='FINE'}", "return redis.error_reply('MINE it is')",
    "return redis.call('set',KEYS[1],ARGV[1])", "return redis.call('get',KEYS[1])",
    "return redis.call('incr')", "return redis.call('nosuch')", "return redis.sha1hex(ARGV[1])",
    "return redis.pcall('zadd',KEYS[1],1,'m')['err']:sub(1,9)",
    "return redis.call('get','none')==false and 1 or 0",
    "return redis.call('zadd','z',2^53,'m',1e20,'n',0.1,'o')",
    "return redis.call('zrange','z',0,-1,'withscores')", "return {KEYS[1],ARGV[2],#KEYS,#ARGV,ARGV[3]}",
    "return unpack(redis.call('time'))>'1'", "return #redis.call('time')", "nonsense",
    "return nothing.there", "return 1e15", "return tostring(2^53)", "return 'n='..12345678901234567",
]  # fmt: skip


def test_each_command_answers_as_on_a_real_master(nodes: list[redis.Redis]) -> None:
    """Catches: a refusal for a grant, another type of reply, an error that a real master does not answer."""
    for line in COMMANDS:
        real, memory = (answer(node, *line.split()) for node in nodes)
        if isinstance(real, list) and line.startswith(("KEYS", "SCAN")):
            real, memory = sorted(map(str, real)), sorted(map(str, memory))
            real, memory = [*map(sorted, real)], [*map(sorted, memory)]  # in any order
        same = real == memory
        if line.startswith("PTTL") and isinstance(real, int) and real > 0:
            same = abs(real - memory) < NEAR
        assert same, f"{line}: {real}, in memory {memory}"


@pytest.mark.parametrize("script", SCRIPTS)
def test_each_script_returns_what_it_does_on_a_real_master(nodes: list[redis.Redis], script: str) -> None:
    real, memory = (
        [answer(node, "EVAL", script, 1, "key", "value", "two") for _ in range(2)] for node in nodes
    )
    if isinstance(real[0], tuple):  # texts of Lua's own errors differ
        assert [reply[0] for reply in real] == [reply[0] for reply in memory]
    else:
        assert real == memory


#: No ticket of a fair lock is so large, and each counter of fencing tokens is: it begins at a clock.
A_COUNTER = 10**15


class Both:
    """Sends each request to both masters, as an engine does for servers with these capabilities."""

    def __init__(
        self, nodes: list[redis.Redis], can: Capabilities, marker: RestartMarker | None = None
    ) -> None:
        self.nodes = nodes
        self.connections: list[Any] = [node.connection_pool.make_connection() for node in nodes]
        self.commands = dialect(can, marker)

    def ask(self, verb: Verb, *args: bytes) -> None:
        real, memory = (self._execute(one, self.commands[verb], args) for one in self.connections)
        same = real == memory
        if isinstance(real, int) and isinstance(memory, int) and (min(real, memory) > 0 or real < -A_COUNTER):
            same = abs(real - memory) < NEAR
        assert same, f"{verb.name} {args}: {real}, in memory {memory}"

    def _execute(self, connection: Any, command: Command, args: tuple[bytes, ...]) -> Any:
        connection.send_packed_command([Template(command).encode(args)])
        try:
            return connection.read_response()
        except redis.exceptions.NoScriptError:
            assert command.fallback is not None
            return self._execute(connection, command.fallback, args)
        except redis.exceptions.ResponseError as error:
            return str(error).split()[0]

    def compare(self) -> None:
        real, memory = map(contents, self.nodes)
        assert real.keys() == memory.keys()
        for key, parts in real.items():
            assert parts == pytest.approx(memory[key], abs=NEAR), key


def contents(node: redis.Redis) -> dict[bytes, dict[bytes, float]]:
    """What a master has: of each key what is in it, with its score and what is left of its time."""
    found: dict[bytes, dict[bytes, float]] = {}
    for key in node.scan_iter():
        if node.type(key) == b"zset":
            found[key] = dict(node.zrange(key, 0, -1, withscores=True))
        else:
            value = node.get(key)
            assert isinstance(value, bytes)
            found[key] = {b"number": float(value)} if value.isdigit() else {value.split()[0]: 0.0}
        found[key][b"time left"] = node.pttl(key)
    return found


def fenced(chance: random.Random) -> tuple[Any, ...]:
    args = b"a", chance.choice(OWNERS), chance.choice(TTLS), b"{a}:f", b"80000000", b"30000"
    number = b"%d" % chance.randrange(1, 1 << 54)
    return chance.choice(
        [
            (Verb.FENCE, *args),
            (Verb.RAISE_FENCE, *args[:2], number, *args[3:]),
            (Verb.RELEASE, *args[:2]),
            (Verb.OWNER, b"a"),
            (Verb.ACQUIRE, *args[:3]),
        ]
    )


@pytest.mark.parametrize(
    "can", [Capabilities(), Capabilities(delifeq=True, expire_gt=True)], ids=["scripts", "native"]
)
@pytest.mark.parametrize("kind", [plain, readwrite, semaphore, multilock, fair, fenced])
def test_each_kind_leaves_the_same_on_both(nodes: list[redis.Redis], kind: Any, can: Capabilities) -> None:
    """Random requests of one kind of lock. Catches: a score, an end or a member that differs."""
    both, chance = Both(nodes, can), random.Random(kind.__name__)
    for step in range(STEPS):
        verb, *args = kind(chance)
        both.ask(verb, *args)
        if step % EACH == 0:
            both.compare()


def test_a_marker_gives_no_vote_on_both(nodes: list[redis.Redis]) -> None:
    marked = Both(nodes, Capabilities(), RestartMarker("process", 60_000))
    for _ in range(2):
        marked.ask(Verb.ACQUIRE, b"a", b"one", TTLS[0])
    marked.compare()
    trusted = Both(nodes, Capabilities(), RestartMarker("process", 0))
    trusted.ask(Verb.ACQUIRE, b"a", b"one", TTLS[0])
    trusted.compare()


def request(*words: str) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(bulk(word.encode()) for word in words)


def pushes(node: redis.Redis) -> bytes:
    """What a connection that watches two keys receives while another one changes them."""
    options = node.connection_pool.connection_kwargs
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(DEADLINE)
        sock.connect(options["path"])
        if options.get("password"):
            sock.sendall(request("AUTH", options["password"]))
        sock.sendall(request("HELLO", "3") + request("CLIENT", "TRACKING", "ON", "OPTIN"))
        for key in ("a", "b"):
            sock.sendall(request("CLIENT", "CACHING", "YES") + request("GET", key))
        received(sock, request("PING", "watched"), b"watched\r\n")
        node.set("b", "1")
        node.set("b", "2")
        node.eval("return redis.call('set','a',1)", 0)
        sock.sendall(request("CLIENT", "CACHING", "YES") + request("GET", "a"))
        found = received(sock, request("PING", "again"), b"again\r\n")
        node.set("unwatched", "1")
        node.flushall()
        return found + received(sock, request("PING", "end"), b"end\r\n")


def received(sock: socket.socket, data: bytes, end: bytes) -> bytes:
    """All that comes up to the reply to ``data``."""
    sock.sendall(data)
    found = b""
    while not found.endswith(end):
        found += sock.recv(4096)
    return found


def test_changes_are_pushed_as_by_a_real_master(nodes: list[redis.Redis]) -> None:
    """Catches: no push of a change, or several; waiting callers would only be late."""
    real, memory = map(pushes, nodes)
    assert real == memory
    assert memory.count(b"invalidate") == 3, "each key once, and the flush"
