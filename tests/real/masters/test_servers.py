"""Servers as they are out there: of two kinds, guarded, crippled, in trouble."""

from __future__ import annotations

import contextlib
import logging
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
import redis
from support.certificates import Certificates
from support.dialling import none_dials
from support.keys import OTHER_CLIENT, values
from support.listening import Listening
from support.scripted import Words
from support.waiting import DEADLINE, eventually

from redlock_fast import FastRedlock, Lock, QuorumUnavailable, telemetry
from redlock_fast.embedded import Masters
from redlock_fast.wire.dialect import COMPARE_AND_EXTEND, MARKER

MakeClient = Callable[..., FastRedlock]
Nodes = list[redis.Redis]
Raw = Callable[[Masters], Nodes]
Pretend = Callable[[Callable[[Words], bytes]], Listening]

#: Seconds; shorter than the leases: a key that goes later was forgotten, and only expired.
SOON = 8.0


def until_values(nodes: Nodes, key: str | bytes, expected: list[bytes | None]) -> None:
    eventually(
        lambda: values(nodes, key) == expected, f"the masters have {expected} for {key!r}", deadline=SOON
    )


def until_empty(nodes: Nodes) -> None:
    """But for the marker of a master that was a replica."""
    eventually(
        lambda: not any(set(node.scan_iter()) - {MARKER} for node in nodes),
        "no key is left on any master",
        deadline=SOON,
    )


def held(client: FastRedlock, resource: str = "r", ttl: float = 20) -> Lock:
    lock = client.lock(resource, ttl)
    assert lock.acquire(timeout=DEADLINE)
    return lock


def check_life(client: FastRedlock, resource: str = "r") -> None:
    """All that a lock does works here."""
    lock = held(client, resource)
    assert client.acquire(resource, blocking=False) is None
    assert client.locked(resource) is True
    assert lock.extend(50) > 20
    assert lock.release() is True
    assert lock.release() is False
    assert client.locked(resource) is False


def until_down(client: FastRedlock, masters: int, state: str = "down") -> None:
    """Connecting has failed for the first ``masters`` masters, and the reason is known."""
    client.connect(0.01)
    first = slice(masters)
    eventually(lambda: {m.state for m in client.health()[first]} == {state}, f"{masters} masters are {state}")


def paths(client: FastRedlock) -> list[str]:
    return [master.release_path for master in client.health()]


# --- two kinds of servers -----------------------------------------------------------------------


def test_clients_of_valkey_py_as_masters(client: MakeClient, masters: Masters) -> None:
    package = pytest.importorskip("valkey", reason="package valkey is not installed: pip install valkey")
    with contextlib.ExitStack() as stack:
        urls = [*masters.urls[:3], *masters.unix_urls[3:]]
        check_life(client([stack.enter_context(package.Valkey.from_url(url)) for url in urls]))


def test_native_commands_of_valkey(valkey: Masters, connected: MakeClient, raw: Raw) -> None:
    client = connected(valkey)
    for node in raw(valkey):
        node.config_resetstat()
    check_life(client)
    assert paths(client) == ["DELIFEQ"] * 5
    assert {(master.server, master.version[:2]) for master in client.health()} == {("valkey", "9.")}
    until_empty(raw(valkey))
    used = {name for node in raw(valkey) for name in node.info("commandstats")}
    assert "cmdstat_delifeq" in used
    assert not {"cmdstat_del", "cmdstat_pttl"} & used, "no script but the one that extends"


def test_scripts_on_redis(redis7: Masters, connected: MakeClient, raw: Raw) -> None:
    client = connected(redis7)
    for node in raw(redis7):
        node.config_resetstat()
    check_life(client)
    assert paths(client) == ["EVALSHA"] * 5
    assert {master.server for master in client.health()} <= {"redis", "valkey"}, "Valkey before 9 is like it"
    until_empty(raw(redis7))
    used = {name for node in raw(redis7) for name in node.info("commandstats")}
    assert "cmdstat_evalsha" in used
    assert "cmdstat_eval" not in used  # the scripts were loaded when the client connected


@pytest.mark.usefixtures("all_masters")
@pytest.mark.parametrize("valkeys", [1, 2, 3, 4])
def test_mixed_fleet(valkey: Masters, redis7: Masters, connected: MakeClient, raw: Raw, valkeys: int) -> None:
    client = connected(valkey.urls[:valkeys] + redis7.urls[valkeys:])
    nodes = raw(valkey)[:valkeys] + raw(redis7)[valkeys:]
    assert paths(client) == ["DELIFEQ"] * valkeys + ["EVALSHA"] * (5 - valkeys)
    check_life(client)
    lock = held(client)
    until_values(nodes, "r", [lock.token] * 5)
    lock.extend(50)
    eventually(lambda: all(int(node.pttl("r")) > 20_000 for node in nodes), "all keys last longer")
    assert lock.release() is True
    until_empty(nodes)


# --- scripts that were flushed ------------------------------------------------------------------


def flush_scripts(nodes: Nodes) -> None:
    for node in nodes:
        node.script_flush()


def test_scripts_flushed_before_extend_and_release(redis7: Masters, connected: MakeClient, raw: Raw) -> None:
    client, nodes = connected(redis7), raw(redis7)
    lock = held(client)
    until_values(nodes, "r", [lock.token] * 5)
    flush_scripts(nodes)
    assert lock.extend(50) > 20
    # Those that had lost the script and answered after the decision need not be asked again.
    assert sum(int(node.pttl("r")) > 20_000 for node in nodes) >= 3
    flush_scripts(nodes)
    assert lock.release() is True
    until_empty(nodes)
    assert not any(master.faults for master in client.health())


def test_scripts_flushed_before_a_failed_acquire(redis7: Masters, connected: MakeClient, raw: Raw) -> None:
    client, nodes = connected(redis7, decide="all"), raw(redis7)
    for node in nodes[:3]:
        node.set("r", OTHER_CLIENT)
    flush_scripts(nodes)
    assert client.acquire("r", blocking=False) is None
    until_values(nodes, "r", [OTHER_CLIENT] * 3 + [None] * 2)


def test_scripts_flushed_on_masters_that_answer_after_the_decision(
    redis7: Masters, connected: MakeClient, raw: Raw
) -> None:
    client, nodes = connected(redis7), raw(redis7)
    lock = held(client)
    until_values(nodes, "r", [lock.token] * 5)
    flush_scripts(nodes)
    for master in (3, 4):
        redis7[master].pause()
    assert lock.extend(50) > 20
    assert lock.release() is True
    for master in (3, 4):
        redis7[master].resume()
    until_empty(nodes)


@pytest.mark.parametrize(
    ("server", "command", "path", "protocol"),
    [
        ("redis", "HELLO", "EVALSHA", 2),
        ("redis", "SCRIPT", "EVALSHA", 3),
        ("valkey", "HELLO", "DELIFEQ", 2),
        ("valkey", "DELIFEQ", "EVALSHA", 3),
    ],
)
def test_server_without_a_command(
    connected: MakeClient, raw: Raw, server: str, command: str, path: str, protocol: int
) -> None:
    with Masters(3, server=server, options=("--rename-command", command, "")) as masters:
        client, nodes = connected(masters), raw(masters)
        assert paths(client) == [path] * 3
        assert {master.protocol for master in client.health()} == {protocol}
        for _ in range(3):
            check_life(client)
        until_empty(nodes)
        assert not any(master.faults for master in client.health())
        client.close()


# --- permissions --------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["valkey", "redis"])
def guarded(request: pytest.FixtureRequest) -> Iterator[Masters]:
    """Three masters with the password "secret"."""
    with Masters(3, server=request.param, options=("--requirepass", "secret")) as masters:
        yield masters


def urls(masters: Masters, user: str) -> list[str]:
    return [f"redis://{user}@127.0.0.1:{master.port}" for master in masters]


def test_password(guarded: Masters, connected: MakeClient) -> None:
    check_life(connected(urls(guarded, ":secret")))
    check_life(connected(urls(guarded, "default:secret")))
    clients = [redis.Redis(port=master.port, password="secret") for master in guarded]
    check_life(connected(clients))
    for client in clients:
        client.close()


def test_credential_provider(guarded: Masters, connected: MakeClient) -> None:
    provider = redis.UsernamePasswordCredentialProvider("default", "secret")
    clients = [redis.Redis(port=master.port, credential_provider=provider) for master in guarded]
    check_life(connected(clients))
    for client in clients:
        client.close()


@pytest.mark.parametrize(
    ("user", "expected"),
    [(":wrong", "WRONGPASS"), ("nobody:secret", "WRONGPASS"), ("", "NOAUTH"), ("reader:secret", "NOPERM")],
)
def test_refused_user(guarded: Masters, client: MakeClient, user: str, expected: str) -> None:
    """The code is the first word of the cause, and the master is not "down"."""
    where = urls(guarded, user) if user else guarded.urls
    for master in guarded if "reader" in user else ():
        with redis.Redis(port=master.port, password="secret") as node:
            node.execute_command("ACL", "SETUSER", "reader", "on", ">secret", "~*", "+@all", "-set")
    one = client(where)
    until_down(one, 3, "refused")
    with pytest.raises(QuorumUnavailable, match=expected) as error:
        one.lock("r").acquire(blocking=False)
    causes = {cause.master: cause.cause for cause in error.value.causes}
    assert set(causes) == {f"127.0.0.1:{master.port}/0" for master in guarded}
    assert "secret" not in str(error.value)
    assert all(cause.startswith(f"{expected} ") for cause in causes.values())
    assert causes == {health.name: health.error for health in one.health()}
    assert repr(one).count(" refused") == 3
    assert "secret" not in repr(one)


#: No INFO, ROLE, CONFIG, COMMAND or SCRIPT; and only what lies under its prefix.
SCRIPTS_ONLY = "+set +exists +get +del +pexpire +pttl +eval +evalsha"
NATIVE_ONLY = "+set +exists +delifeq +get +pexpire +eval +evalsha"


@pytest.fixture
def limited(raw: Raw) -> Iterator[Callable[[Masters, str], list[str]]]:
    """``limited(masters, policy)``: URLs of a user that may do no more than that."""
    hurt: Nodes = []

    def make(masters: Masters, policy: str) -> list[str]:
        for node in raw(masters):
            command = ["ACL", "SETUSER", "locker", "reset", "on", ">pw", *policy.split()]
            node.execute_command(*command)  # type: ignore[no-untyped-call]
            hurt.append(node)
        return urls(masters, "locker:pw")

    yield make
    for node in hurt:
        node.acl_deluser("locker")


@pytest.mark.parametrize("allowed", [SCRIPTS_ONLY, f"{NATIVE_ONLY} {SCRIPTS_ONLY}"])
def test_user_with_few_rights(
    masters: Masters, connected: MakeClient, raw: Raw, limited: Callable[..., list[str]], allowed: str
) -> None:
    if not masters.binary.endswith("valkey-server"):
        allowed = allowed.replace("+delifeq", "")
    client = connected(limited(masters, f"~locks:* {allowed}"), key_prefix="locks:")
    check_life(client)
    until_empty(raw(masters))
    assert paths(client) == ["DELIFEQ" if "+delifeq" in allowed else "EVALSHA"] * 5
    for health in client.health():
        assert (health.connections, health.faults, health.error) == (1, 0, "")
        assert (health.server, health.version, health.role, health.run_id) == ("", "", "", "")
        assert health.protocol == 3


def test_user_without_del_where_commands_are_native(
    valkey: Masters, connected: MakeClient, raw: Raw, limited: Callable[..., list[str]]
) -> None:
    client = connected(limited(valkey, f"~locks:* {NATIVE_ONLY}"), key_prefix="locks:")
    check_life(client)
    until_empty(raw(valkey))
    assert not any(health.faults for health in client.health())


@pytest.mark.parametrize("allowed", [NATIVE_ONLY, f"{NATIVE_ONLY} +info", SCRIPTS_ONLY])
def test_user_whose_pattern_is_narrower_than_the_prefix(
    valkey: Masters, connected: MakeClient, raw: Raw, limited: Callable[..., list[str]], allowed: str
) -> None:
    # The capabilities cannot be probed with a separate key then.
    client = connected(limited(valkey, f"~orders:* {allowed}"))
    check_life(client, "orders:42")
    until_empty(raw(valkey))
    assert not any(health.faults for health in client.health())


def test_user_with_too_few_permissions(
    masters: Masters, connected: MakeClient, raw: Raw, limited: Callable[..., list[str]]
) -> None:
    client = connected(limited(masters, "~locks:* +set +get"))
    with pytest.raises(QuorumUnavailable, match="NOPERM") as error:
        client.lock("elsewhere").acquire(blocking=False)
    assert len(error.value.causes) >= 3
    until_empty(raw(masters))


# --- ways to connect ----------------------------------------------------------------------------


def test_unix_sockets(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    client = connected(masters.unix_urls)
    assert [health.name for health in client.health()] == [f"unix:{m.socket_path}/0" for m in masters]
    check_life(client)
    lock = held(client)
    until_values(raw(masters), "r", [lock.token] * 5)
    assert connected(masters).acquire("r", blocking=False) is None  # the same masters by another way


def test_unix_socket_that_is_not_there(client: MakeClient, tmp_path: Path) -> None:
    one = client([f"unix://{tmp_path}/nothing"])
    until_down(one, 1)
    with pytest.raises(QuorumUnavailable, match=f"unix:{tmp_path}/nothing/0: not connected: .*No such file"):
        one.lock("r").acquire(blocking=False)


def test_database(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    client = connected([f"{url}/3" for url in masters.urls])
    assert [health.name for health in client.health()] == [f"127.0.0.1:{m.port}/3" for m in masters]
    check_life(client)
    lock = held(client)
    assert values(raw(masters), "r") == [None] * 5
    assert connected(masters).locked("r") is False
    third = [redis.Redis(port=master.port, db=3) for master in masters]
    until_values(third, "r", [lock.token] * 5)
    assert lock.release() is True
    until_empty(third)
    for node in third:
        node.close()


@pytest.fixture(scope="module", params=["no", "yes"], ids=["tls", "mutual tls"])
def tls(
    request: pytest.FixtureRequest, authority: Certificates, tls_server: str
) -> Iterator[tuple[Masters, list[str]]]:
    """Three masters that speak nothing but TLS, and their URLs."""
    files = [f"--tls-{what}-file {authority.path(name)}" for what, name in SERVER_FILES]
    options = f"--port 0 --tls-port {{port}} --tls-auth-clients {request.param} {' '.join(files)}"
    query = f"ssl_ca_certs={authority.path('ca.crt')}"
    if request.param == "yes":
        query += f"&ssl_certfile={authority.path('server.crt')}&ssl_keyfile={authority.path('server.key')}"
    with Masters(3, server=tls_server, options=options.split()) as masters:
        yield masters, [f"rediss://127.0.0.1:{master.port}?{query}" for master in masters]
        none_dials()


SERVER_FILES = (("cert", "server.crt"), ("key", "server.key"), ("ca-cert", "ca.crt"))


def test_tls(tls: tuple[Masters, list[str]], connected: MakeClient, raw: Raw) -> None:
    masters, secure = tls
    client, nodes = connected(secure), raw(masters)
    for number in range(20):
        check_life(client, f"r{number}")
    long = "x" * (64 << 10)
    check_life(client, long)
    eventually(lambda: all(one.state == "connected" for one in client.health()), "no master lags")
    lock = held(client)
    until_values(nodes, "r", [lock.token] * 3)
    assert lock.release() is True
    until_empty(nodes)
    assert not any(health.faults for health in client.health())


def test_tls_by_many_threads(tls: tuple[Masters, list[str]], connected: MakeClient, raw: Raw) -> None:
    masters, secure = tls
    client = connected(secure)
    count = 0

    def work(_: int) -> None:
        nonlocal count
        with client.lock("r"):
            before = count
            held(client, "another").release()
            count = before + 1

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(40)))
    assert count == 40
    until_empty(raw(masters))


def test_tls_master_that_hangs_or_restarts(
    tls: tuple[Masters, list[str]], connected: MakeClient, raw: Raw
) -> None:
    masters, secure = tls
    client = connected(secure)
    masters[0].pause()
    for _ in range(5):
        lock = client.lock("r")
        assert lock.acquire(blocking=False) is True
        assert lock.release() is True
    masters[0].resume()
    until_empty(raw(masters))
    masters[1].restart()
    check_life(client)
    eventually(lambda: client.health()[1].connections == 2, "it is connected again")
    check_life(client)


@pytest.mark.parametrize("query", ["", "?ssl_ca_certs={}/unknown_ca.crt"])
def test_tls_from_an_unknown_authority(
    tls: tuple[Masters, list[str]], client: MakeClient, authority: Certificates, query: str
) -> None:
    masters, _ = tls
    where = [f"rediss://127.0.0.1:{master.port}{query.format(authority.folder)}" for master in masters]
    one = client(where)
    until_down(one, 3)
    with pytest.raises(QuorumUnavailable, match=r"(?i)certificate.verify.failed") as error:
        one.lock("r").acquire(blocking=False)
    assert len(error.value.causes) == 3


def test_plain_text_to_a_tls_port(tls: tuple[Masters, list[str]], client: MakeClient) -> None:
    masters, _ = tls
    one = client(masters)
    until_down(one, 3)
    with pytest.raises(QuorumUnavailable) as error:
        one.lock("r").acquire(blocking=False)
    assert len(error.value.causes) == 3


# --- masters in trouble -------------------------------------------------------------------------


@contextlib.contextmanager
def out_of_memory(nodes: Nodes) -> Iterator[None]:
    for node in nodes:
        node.config_set("maxmemory", "1")
    try:
        yield
    finally:
        for node in nodes:
            node.config_set("maxmemory", "0")


@contextlib.contextmanager
def without_permission(nodes: Nodes) -> Iterator[None]:
    for node in nodes:
        node.acl_setuser("default", enabled=True, nopass=True, commands=["+@all", "-set"], keys=["*"])
    try:
        yield
    finally:
        for node in nodes:
            node.acl_setuser("default", enabled=True, nopass=True, commands=["+@all"], keys=["*"])


@contextlib.contextmanager
def read_only(nodes: Nodes) -> Iterator[None]:
    for node in nodes:
        node.replicaof("127.0.0.1", 1)  # an address without a server: it keeps its data
    try:
        yield
    finally:
        for node in nodes:
            node.replicaof("NO", "ONE")


@contextlib.contextmanager
def busy(nodes: Nodes) -> Iterator[None]:
    """A script runs that does not end."""
    with ThreadPoolExecutor(len(nodes)) as pool:
        for node in nodes:
            node.config_set("lua-time-limit", "1")
        endless = [pool.submit(node.eval, "while true do end", 0) for node in nodes]
        try:
            for node in nodes:
                eventually(partial(is_busy, node), "the script is noticed")
            yield
        finally:
            for node in nodes:
                node.script_kill()
            for script in endless:
                assert script.exception(DEADLINE) is not None
            for node in nodes:
                node.config_set("lua-time-limit", "5000")


def is_busy(node: redis.Redis) -> bool:
    try:
        node.get("r")
    except redis.ResponseError as error:
        return "BUSY" in str(error)
    return False


Trouble = Callable[[Nodes], contextlib.AbstractContextManager[None]]

TROUBLES = [
    pytest.param(out_of_memory, "OOM", id="OOM"),
    pytest.param(without_permission, "NOPERM", id="NOPERM"),
    pytest.param(busy, "BUSY", id="BUSY"),
]


@pytest.mark.parametrize(("trouble", "word"), TROUBLES)
def test_minority_in_trouble_fails_nothing(
    masters: Masters,
    connected: MakeClient,
    raw: Raw,
    caplog: pytest.LogCaptureFixture,
    trouble: Trouble,
    word: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(telemetry, "LOG_INTERVAL", 3600.0)
    client, nodes = connected(masters), raw(masters)

    def noticed() -> bool:
        for _ in range(5):
            lock = client.lock("r")
            assert lock.acquire(blocking=False) is True
            assert lock.extend(50) > 20
            assert lock.release() is True
        return all(client.health()[master].faults > 1 for master in (0, 3))

    with trouble([nodes[0], nodes[3]]), caplog.at_level(logging.WARNING, "redlock_fast"):
        eventually(noticed, "the trouble is counted")
    for number, health in enumerate(client.health()):
        assert (word in health.error) == (number in (0, 3))
        assert (health.faults > 0) == (number in (0, 3))
        assert health.connections == 1
    assert client.stats().faults == sum(health.faults for health in client.health())
    until_empty(nodes)
    warnings = [record.getMessage() for record in caplog.records if "master-fault" in record.getMessage()]
    assert len(warnings) == 2  # once for each in a long time
    for master in (0, 3):
        name = client.health()[master].name
        assert [True for warning in warnings if name in warning and word in warning] == [True]


@pytest.mark.parametrize(("trouble", "word"), TROUBLES)
def test_majority_in_trouble(
    masters: Masters, connected: MakeClient, raw: Raw, trouble: Trouble, word: str
) -> None:
    client, nodes = connected(masters), raw(masters)
    lock = client.lock("r")
    with trouble(nodes[:3]):
        with pytest.raises(QuorumUnavailable, match=word) as error:
            lock.acquire(blocking=False)
        named = {cause.master for cause in error.value.causes if word in cause.cause}
        assert named == {health.name for health in client.health()[:3]}
        assert not lock.locked()
        until_empty(nodes[3:])
    until_empty(nodes)
    assert lock.acquire(blocking=False) is True  # and it heals


def test_a_majority_became_replicas(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    """What they are is found out, and when they are masters again they are silent for a while."""
    client, nodes = connected(masters, max_ttl=3.0, ttl=2.0), raw(masters)
    lock = client.lock("r")
    with read_only(nodes[:3]):
        with pytest.raises(QuorumUnavailable, match=r"READONLY|not a master"):
            lock.acquire(blocking=False)
        until_down(client, 3)
        until_empty(nodes[3:])
    eventually(lambda: all(h.state == "connected" for h in client.health()), "they are masters again")

    def healed() -> bool:
        with contextlib.suppress(QuorumUnavailable):
            return lock.acquire(blocking=False)
        return False

    eventually(healed, "and it heals", deadline=60.0)


def test_release_where_all_masters_are_out_of_memory(
    masters: Masters, connected: MakeClient, raw: Raw
) -> None:
    client, nodes = connected(masters), raw(masters)
    lock = held(client)
    with out_of_memory(nodes):
        assert lock.release() is True
        until_empty(nodes)


def test_replica_is_refused(valkey: Masters, connected: MakeClient, client: MakeClient, raw: Raw) -> None:
    nodes = raw(valkey)
    with read_only(nodes[:2]):
        one = client(valkey)
        check_life(one)
        until_down(one, 2)
        assert all("not a master" in health.error for health in one.health()[:2])
        assert not any(health.error for health in one.health()[2:])
    eventually(lambda: {h.state for h in one.health()} == {"connected"}, "the masters are masters again")
    until_empty(nodes)


def test_replicas_are_no_quorum(redis7: Masters, client: MakeClient, raw: Raw) -> None:
    nodes = raw(redis7)
    with read_only(nodes[:3]):
        one = client(redis7)
        until_down(one, 3)
        with pytest.raises(QuorumUnavailable, match="not a master") as error:
            one.lock("r").acquire(blocking=False)
        named = [cause.master for cause in error.value.causes if "not a master" in cause.cause]
        assert named == [health.name for health in one.health()[:3]]
        until_empty(nodes)


def test_guarded_minority_without_the_password(guarded: Masters, valkey: Masters, client: MakeClient) -> None:
    one = client(guarded.urls[:2] + valkey.urls[:3])
    check_life(one)
    until_down(one, 2, "refused")
    assert all(health.error.startswith("NOAUTH ") for health in one.health()[:2])


# --- servers that only pretend ------------------------------------------------------------------


class Redis84:
    """As much of Redis 8.4 as a lock needs: DELEX, PEXPIRE GT, and the script that extends."""

    def __init__(self) -> None:
        self.keys: dict[bytes, bytes] = {}
        self.run_id = secrets.token_hex(20)

    def __call__(self, words: Words) -> bytes:
        name, *arguments = words
        known = getattr(self, name.decode().lower(), None)
        return known(*arguments) if known else b"-ERR unknown command '%b'\r\n" % name

    def hello(self, *_: bytes) -> bytes:
        return b"%3\r\n+server\r\n+redis\r\n+version\r\n+8.4.0\r\n+proto\r\n:3\r\n"

    def client(self, *_: bytes) -> bytes:
        return b"+OK\r\n"

    def info(self, *_: bytes) -> bytes:
        text = b"# Server\r\nredis_version:8.4.0\r\nrun_id:%b\r\nuptime_in_seconds:7\r\n"
        text %= self.run_id.encode()
        return b"$%d\r\n%b\r\n" % (len(text), text)

    def role(self) -> bytes:
        return b"*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n"

    def exists(self, key: bytes) -> bytes:
        return b":%d\r\n" % (key in self.keys)

    def set(self, key: bytes, value: bytes, *how: bytes) -> bytes:
        if how[0] == b"NX" and key in self.keys:
            return b"_\r\n"
        self.keys[key] = value
        return b"+OK\r\n"

    def pexpire(self, key: bytes, ttl: bytes, *how: bytes) -> bytes:
        assert how == (b"GT",)
        return b":%d\r\n" % (key in self.keys)

    def evalsha(self, *_: bytes) -> bytes:
        return b"-NOSCRIPT No matching script.\r\n"

    def eval(self, script: bytes, number: bytes, key: bytes, value: bytes, ttl: bytes) -> bytes:
        assert script == COMPARE_AND_EXTEND.text
        return b":%d\r\n" % (self.keys.get(key) == value)

    def delex(self, key: bytes, condition: bytes, value: bytes) -> bytes:
        assert condition == b"IFEQ"
        ours = self.keys.get(key) == value
        if ours:
            del self.keys[key]
        return b":%d\r\n" % ours


@pytest.fixture
def pretend() -> Iterator[Pretend]:
    with contextlib.ExitStack() as stack:
        yield lambda reply: stack.enter_context(Listening(reply))


def test_native_commands_of_redis_8_4(connected: MakeClient, pretend: Pretend) -> None:
    servers = [Redis84() for _ in range(3)]
    fakes = [pretend(server) for server in servers]
    client = connected([fake.url for fake in fakes], decide="all")
    assert paths(client) == ["DELEX"] * 3
    for health, server in zip(client.health(), servers, strict=True):
        facts = (health.server, health.version, health.run_id, health.uptime, health.role, health.protocol)
        assert facts == ("redis", "8.4.0", server.run_id, 7, "master", 3)
    check_life(client)
    lock = held(client)
    token = lock.token
    assert token is not None
    assert [server.keys for server in servers] == [{b"r": token}] * 3
    lock.extend(50)
    assert lock.release() is True
    for server, fake in zip(servers, fakes, strict=True):
        assert server.keys == {}
        sha1 = COMPARE_AND_EXTEND.sha1
        assert fake.heard[-4:] == [
            (b"SET", b"r", token, b"NX", b"PX", b"20000"),
            (b"EVALSHA", sha1, b"1", b"r", token, b"50000"),
            (b"EVAL", COMPARE_AND_EXTEND.text, b"1", b"r", token, b"50000"),
            (b"DELEX", b"r", b"IFEQ", token),
        ]
        assert not {words[0] for words in fake.heard} & {b"GET", b"DEL"}


@pytest.mark.parametrize(
    "reply",
    [
        b"-LOADING Redis is loading the dataset in memory\r\n",
        b"-MOVED 3999 127.0.0.1:6381\r\n",
        b"-CLUSTERDOWN Hash slot not served\r\n",
        b"-MASTERDOWN Link with MASTER is down\r\n",
        b"-NOAUTH Authentication required.\r\n",
    ],
    ids=lambda reply: reply[1:].split()[0].decode(),
)
def test_minority_with_other_replies(
    valkey: Masters, connected: MakeClient, pretend: Pretend, raw: Raw, reply: bytes
) -> None:
    client = with_two_that_say(reply, valkey, connected, pretend)
    lock = client.lock("r")
    for _ in range(3):
        assert lock.acquire(blocking=False) is True
        assert lock.extend(50) > 20
        assert lock.release() is True
        assert client.locked("r") is False
    until_empty(raw(valkey))
    text = reply[1:].strip().decode()
    word = text.split()[0]

    def says_why(error: str) -> bool:
        # redis-py, which opens the next connection, cuts the words that it knows off the text.
        return word in error or error == text.removeprefix(f"{word} ")

    eventually(lambda: all(says_why(one.error) for one in client.health()[:2]), "the next attempt says why")
    for health in client.health()[:2]:
        assert health.faults >= (1 if word in ("LOADING", "MASTERDOWN") else 9), "these end the connection"
    assert [health.faults for health in client.health()[2:]] == [0, 0, 0]


def with_two_that_say(reply: bytes, valkey: Masters, connected: MakeClient, pretend: Pretend) -> FastRedlock:
    """A client of five masters, connected; from now on two of them answer that to everything."""
    fakes = [pretend(Redis84()) for _ in range(2)]
    client = connected([fake.url for fake in fakes] + valkey.urls[:3], decide="all")
    for fake in fakes:
        fake.reply = lambda words: reply
    return client


@pytest.mark.parametrize("reply", [b"+QUEUED\r\n", b":1\r\n"], ids=["QUEUED", "number"])
def test_minority_with_replies_that_a_set_cannot_have(
    valkey: Masters, connected: MakeClient, pretend: Pretend, raw: Raw, reply: bytes
) -> None:
    client = with_two_that_say(reply, valkey, connected, pretend)
    lock = client.lock("r")
    for _ in range(3):
        assert lock.acquire(blocking=False) is True
        assert lock.release() is True
    until_empty(raw(valkey))
    for health in client.health()[:2]:
        assert health.causes["protocol error"] >= 1
    assert [health.faults for health in client.health()[2:]] == [0, 0, 0]


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (b"-LOADING Redis is loading the dataset in memory\r\n", "(?i)loading"),
        (b"-ERR max number of clients reached\r\n", "max number of clients"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "(?i)protocol error"),
    ],
    ids=["LOADING", "full", "HTTP"],
)
def test_masters_that_cannot_be_used_from_the_start(
    valkey: Masters, client: MakeClient, pretend: Pretend, reply: bytes, expected: str
) -> None:
    fakes = [pretend(lambda words: reply) for _ in range(3)]
    minority = client([fake.url for fake in fakes[:2]] + valkey.urls[:3])
    check_life(minority)
    until_down(minority, 2)
    assert all(health.error for health in minority.health()[:2])
    minority.close()
    majority = client([fake.url for fake in fakes] + valkey.urls[:2])
    until_down(majority, 3)
    with pytest.raises(QuorumUnavailable, match=expected) as error:
        majority.lock("r").acquire(blocking=False)
    assert {cause.master for cause in error.value.causes} >= {h.name for h in majority.health()[:3]}
    majority.close()
