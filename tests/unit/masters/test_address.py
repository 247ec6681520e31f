"""Settings: from a URL or a redis-py client to an address. No network traffic, no password in texts."""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import socket
from collections.abc import Iterator
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.sentinel import Sentinel
from support.cases import cases

from redlock_fast import ConfigError, FastRedlock
from redlock_fast.masters.address import target

SECRET = "hunter2"


@pytest.fixture(autouse=True)
def no_io(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("this is I/O")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture
def clients() -> Iterator[contextlib.ExitStack]:
    """For redis-py clients that are closed after the test."""
    with contextlib.ExitStack() as stack:
        yield stack


def settings(master: Any, protocol: int = 3) -> Any:
    """The connection that would be made."""
    return target(master).connect(1.5, protocol)


# --- URLs ---------------------------------------------------------------------------------------


@cases(
    "url, name, address",
    [
        ("redis://10.0.0.1", "10.0.0.1:6379/0", ("10.0.0.1", 6379)),
        ("redis://10.0.0.1:7000", "10.0.0.1:7000/0", ("10.0.0.1", 7000)),
        ("redis://10.0.0.1:7000/3", "10.0.0.1:7000/3", ("10.0.0.1", 7000)),
        ("redis://10.0.0.1?db=3", "10.0.0.1:6379/3", ("10.0.0.1", 6379)),
        (f"redis://:{SECRET}@10.0.0.1", "10.0.0.1:6379/0", ("10.0.0.1", 6379)),
        (f"redis://user:{SECRET}@master.example:7000/2", "master.example:7000/2", ("master.example", 7000)),
        (f"redis://10.0.0.1?username=user&password={SECRET}", "10.0.0.1:6379/0", ("10.0.0.1", 6379)),
        (f"rediss://user:{SECRET}@10.0.0.1", "10.0.0.1:6379/0", ("10.0.0.1", 6379)),
        ("valkey://10.0.0.1:7000/1", "10.0.0.1:7000/1", ("10.0.0.1", 7000)),
        (f"valkeys://user:{SECRET}@10.0.0.1:7000/1", "10.0.0.1:7000/1", ("10.0.0.1", 7000)),
        ("redis://[::1]:7000/1", "::1:7000/1", ("::1", 7000)),
        ("redis://", "localhost:6379/0", ("localhost", 6379)),
        ("unix:///run/valkey.sock", "unix:/run/valkey.sock/0", ("/run/valkey.sock",)),
        (f"unix://user:{SECRET}@/run/valkey.sock?db=2", "unix:/run/valkey.sock/2", ("/run/valkey.sock",)),
    ],
)
def test_name_and_address(url: str, name: str, address: tuple[Any, ...]) -> None:
    found = target(url)
    assert (found.name, found.address) == (name, address)
    assert SECRET not in repr((found.name, found.address))


SENTINELS = (("10.0.0.1", 26379), ("10.0.0.2", 7000))


@cases(
    "url, name, address",
    [
        ("redis+sentinel://10.0.0.1/locks", "locks@10.0.0.1:26379/0", ("locks", SENTINELS[0])),
        ("redis+sentinel://10.0.0.2:7000,10.0.0.1/locks/3", "locks@10.0.0.2:7000/3", ("locks", *SENTINELS)),
        (
            "redis+sentinel://[::1]:7000,[::2]/locks",
            "locks@::1:7000/0",
            ("locks", ("::1", 7000), ("::2", 26379)),
        ),
        (
            "redis+sentinel://10.0.0.1/my%20locks?db=2",
            "my locks@10.0.0.1:26379/2",
            ("my locks", SENTINELS[0]),
        ),
        (
            f"rediss+sentinel://user:{SECRET}@10.0.0.1/locks",
            "locks@10.0.0.1:26379/0",
            ("locks", SENTINELS[0]),
        ),
        (f"valkey+sentinel://:{SECRET}@10.0.0.1/locks", "locks@10.0.0.1:26379/0", ("locks", SENTINELS[0])),
        (
            f"valkeys+sentinel://10.0.0.1/locks?sentinel_password={SECRET}",
            "locks@10.0.0.1:26379/0",
            ("locks", SENTINELS[0]),
        ),
    ],
)
def test_name_and_address_of_a_service(url: str, name: str, address: tuple[Any, ...]) -> None:
    found = target(url)
    assert (found.name, found.address) == (name, address)
    assert SECRET not in repr((found.name, found.address))


@cases("scheme", ["redis", "rediss", "valkey", "valkeys"])
def test_settings_of_a_url(scheme: str) -> None:
    connection = settings(f"{scheme}://user:h%40nter2@10.0.0.1:7000/3", protocol=2)
    assert (connection.host, connection.port, connection.db) == ("10.0.0.1", 7000, 3)
    assert (connection.username, connection.password) == ("user", "h@nter2")
    assert (connection.socket_timeout, connection.socket_connect_timeout) == (1.5, 1.5)
    assert connection.protocol == 2
    assert isinstance(connection, redis.SSLConnection) == (scheme in ("rediss", "valkeys"))


def test_settings_of_a_pool_are_left_out() -> None:
    """A URL that other programs of a service use, too."""
    url = "redis://10.0.0.1?max_connections=20&timeout=5&health_check_interval=30&retry_on_timeout=true"
    assert target(url).name == "10.0.0.1:6379/0"


def test_settings_of_a_tls_url() -> None:
    connection = settings("rediss://10.0.0.1?ssl_ca_certs=/ca.crt&ssl_certfile=/me.crt&ssl_keyfile=/me.key")
    assert (connection.ca_certs, connection.certfile, connection.keyfile) == ("/ca.crt", "/me.crt", "/me.key")


@cases("query, checked", [("", True), ("?ssl_cert_reqs=none", False), ("?ssl_check_hostname=false", False)])
def test_the_host_of_a_certificate_is_checked(query: str, checked: bool) -> None:
    assert target(f"rediss://host{query}").connect(1.0, 2).check_hostname is checked


def test_settings_of_a_unix_url() -> None:
    connection = settings(f"unix://user:{SECRET}@/run/valkey.sock?db=2")
    assert (connection.path, connection.db) == ("/run/valkey.sock", 2)
    assert (connection.username, connection.password) == ("user", SECRET)


def test_the_version_of_redis_py_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for each master: it is in a file."""
    settings("redis://10.0.0.1")

    def read(package: str) -> str:
        raise AssertionError(f"the version of {package} is read again")

    monkeypatch.setattr(importlib.metadata, "version", read)
    settings("redis://10.0.0.2")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_url_names_the_library() -> None:
    connection = settings("redis://10.0.0.1?lib_name=orders&lib_version=7")
    library = getattr(connection, "driver_info", connection)  # older versions of redis-py have none
    assert library.lib_version == "7"


@cases("url", ["redis://10.0.0.1/0", "unix:///run/valkey.sock", "redis+sentinel://10.0.0.1/locks/0"])
def test_replicas_of_a_url(url: str) -> None:
    """Catches: an option that is lost for one kind of address, or handed on to redis-py."""
    assert target(url).replicas is None
    assert [target(f"{url}?replicas={number}").replicas for number in ("0", "1", "100")] == [0, 1, 100]
    for bad in ("-1", "101", "1.0", "\u0661", "all", "", "%201", "9" * 5000, SECRET):
        with pytest.raises(ConfigError, match="an option replicas that is no number from 0 to 100") as error:
            target(f"{url}?replicas={bad}")
        assert SECRET not in str(error.value)
    with pytest.raises(ConfigError, match="given twice"):
        target(f"{url}?replicas=1&replicas=2")


def test_replicas_of_a_client(clients: contextlib.ExitStack) -> None:
    """Catches: the option of a URL that a client of redis-py was made from, which is text there."""
    client = clients.enter_context(redis.Redis.from_url("redis://10.0.0.1?replicas=2"))
    assert target(client).replicas == 2


def test_protocol_only_where_it_is_asked_for() -> None:
    assert target("redis://10.0.0.1").protocol is None
    assert target("redis://10.0.0.1?protocol=2").protocol == 2
    with pytest.raises(ConfigError, match="protocol '5'"):
        target("redis://10.0.0.1?protocol=5")


@cases(
    "url",
    [
        f"http://user:{SECRET}@10.0.0.1",
        f"user:{SECRET}@10.0.0.1:6379",
        f"redis:/user:{SECRET}@10.0.0.1",
        f"redis://user:{SECRET}@10.0.0.1:port",
        f"redis://user:{SECRET}@10.0.0.1:99999",
        f"redis://user:{SECRET}@10.0.0.1?no_such_option=1",
        f"redis://user:a@{SECRET}@10.0.0.1:port",
        # Not escaped as it should be: the rest of the password is taken for a port, a path, a query.
        f"redis://user:{SECRET}#1@10.0.0.1:6379",
        f"redis://user:{SECRET}/1@10.0.0.1:6379",
        f"redis://user:{SECRET}?1@10.0.0.1:6379",
        f"redis://10.0.0.1:port?password={SECRET}",
        f"redis://10.0.0.1?password={SECRET}&no_such_option=1",
        f"redis://10.0.0.1?password={SECRET}&connection_class=Connection",
        # The same: the rest of the password is taken for the name of an option.
        f"redis://10.0.0.1?password=a&{SECRET}=1",
        f"http://10.0.0.1?username=user&password={SECRET}",
        f"redis+sentinel://user:{SECRET}@10.0.0.1",
        f"redis+sentinel://user:{SECRET}@10.0.0.1/",
        f"redis+sentinel://user:{SECRET}@10.0.0.1,/locks",
        f"redis+sentinel://user:{SECRET}@10.0.0.1:port/locks",
        f"redis+sentinel://user:{SECRET}@10.0.0.1:99999/locks",
        f"redis+sentinel://user:{SECRET}#1@10.0.0.1/locks",
        f"redis+sentinel://user:{SECRET}@10.0.0.1/locks/three/4#",
        f"redis+sentinel://10.0.0.1/locks?password={SECRET}&no_such_option=1",
        f"redis+sentinel://10.0.0.1/locks?sentinel_password={SECRET}&no_such_option=1",
    ],
)
def test_errors_never_show_the_password(url: str) -> None:
    with pytest.raises(ConfigError, match="masters") as error:
        target(url)
    shown: BaseException | None = error.value
    while shown is not None:  # a traceback prints these too
        assert SECRET not in str(shown)
        shown = shown.__cause__ or (None if shown.__suppress_context__ else shown.__context__)
    assert "10.0.0.1" in str(error.value)


@cases(
    "url, part",
    [
        # redis-py would use one of the two, or another server.
        ("redis://10.0.0.1/1?db=2", "an option is given twice"),
        ("redis://10.0.0.1?db=1&db=2", "an option is given twice"),
        ("redis://10.0.0.1?host=10.0.0.2", "an option is given twice"),
        ("redis://10.0.0.1:7000?port=7001", "an option is given twice"),
        ("redis://10.0.0.1?socket_keepalive=yes&socket_keepalive=no", "an option is given twice"),
        ("redis+sentinel://10.0.0.1/locks?db=1&db=2", "an option is given twice"),
        ("redis://10.0.0.1?connection_class=x", "chooses the class of connections"),
        ("redis://10.0.0.1:0", "its port is no number from 1 to 65535"),
        ("redis://10.0.0.1:99999", "its port is no number from 1 to 65535"),
        (f"redis://10.0.0.1:{SECRET}/1", "its port is no number from 1 to 65535"),
        (f"redis+sentinel://10.0.0.1:{SECRET}/locks", "its port is no number from 1 to 65535"),
        ("redis+sentinel://10.0.0.1:0/locks", "its port is no number from 1 to 65535"),
        ("redis+sentinel://10.0.0.1", "it needs the address of a Sentinel and a service"),
        ("redis+sentinel://10.0.0.1,/locks", "an address is empty"),
        ("redis://10.0.0.1 ", "its host has a space or a control character"),
        ("redis://10.0.0.1%00/1", "its host has a space or a control character"),
        ("redis://10.0.0.1%20/1", "its host has a space or a control character"),
        (" redis://10.0.0.1", "it begins with a space"),
        ("\nvalkeys://10.0.0.1", "it begins with a space"),
        ("http://10.0.0.1", "its scheme is unknown"),
        ("10.0.0.1", "its scheme is unknown"),
        ("redis://10.0.0.1/-1", "its database is no number"),
        (f"redis://10.0.0.1/{SECRET}", "its database is no number"),
        (f"redis://user:{SECRET}/1@10.0.0.1", "its password has a character that is not escaped"),
        (f"redis://10.0.0.1?socket_timeout={SECRET}", "its option socket_timeout has a bad value"),
        (f"redis+sentinel://10.0.0.1/locks?max_connections={SECRET}", "its option max_connections has a bad"),
        ("unix://", "the path of a Unix socket begins after unix://"),
        ("unix:///", "the path of a Unix socket begins after unix://"),
        ("unix://run/10.0.0.1.sock", "the path of a Unix socket begins after unix://"),
    ],
)
def test_an_error_names_the_wrong_part(url: str, part: str) -> None:
    with pytest.raises(ConfigError, match="no URL of a master") as error:
        target(url)
    text = str(error.value)
    assert part in text
    assert text.count("(") == 2, "one part, and TLS"
    assert url.startswith(f"redis://10.0.0.1/{SECRET}") or SECRET not in text


def test_nothing_of_a_client_shows_the_password() -> None:
    urls = [f"redis://user:{SECRET}@10.0.0.{number}" for number in (1, 2, 1)]
    with pytest.raises(ConfigError, match="one server") as error:
        FastRedlock(urls)
    assert SECRET not in str(error.value)
    client = FastRedlock(urls[:2])
    assert SECRET not in repr((client, client.health(), client.stats(), client.lock("r")))


# --- clients ------------------------------------------------------------------------------------


def test_settings_of_a_client(clients: contextlib.ExitStack) -> None:
    client = clients.enter_context(
        redis.Redis(
            "10.0.0.1", 7000, db=3, username="user", password=SECRET, decode_responses=True, socket_timeout=99
        )
    )
    found = target(client)
    assert (found.name, found.address) == ("10.0.0.1:7000/3", ("10.0.0.1", 7000))
    connection = found.connect(1.5, 3)
    assert (connection.username, connection.password) == ("user", SECRET)
    assert (connection.socket_timeout, connection.socket_connect_timeout) == (1.5, 1.5)
    assert connection.protocol == 3
    assert not connection.encoder.decode_responses


def test_client_is_left_alone(clients: contextlib.ExitStack) -> None:
    client = clients.enter_context(redis.Redis("10.0.0.1", decode_responses=True, protocol=2))
    before = dict(client.connection_pool.connection_kwargs)
    target(client)
    assert client.connection_pool.connection_kwargs == before


@cases("asked, protocol", [({"protocol": 2}, 2), ({"protocol": 3}, 3)])
def test_protocol_of_a_client(clients: contextlib.ExitStack, asked: dict[str, Any], protocol: int) -> None:
    assert target(clients.enter_context(redis.Redis("10.0.0.1", **asked))).protocol == protocol


def test_client_of_a_unix_socket(clients: contextlib.ExitStack) -> None:
    found = target(clients.enter_context(redis.Redis(unix_socket_path="/run/valkey.sock", db=1)))
    assert (found.name, found.address) == ("unix:/run/valkey.sock/1", ("/run/valkey.sock",))


def test_client_with_tls(clients: contextlib.ExitStack) -> None:
    client = clients.enter_context(redis.Redis("10.0.0.1", ssl=True, ssl_ca_certs="/ca.crt"))
    connection = settings(client)
    assert isinstance(connection, redis.SSLConnection)
    assert connection.ca_certs == "/ca.crt"


def test_client_made_from_a_url(clients: contextlib.ExitStack) -> None:
    client = clients.enter_context(redis.Redis.from_url(f"rediss://user:{SECRET}@10.0.0.1:7000/2"))
    assert target(client).name == "10.0.0.1:7000/2"
    assert settings(client).password == SECRET


def test_client_with_a_credential_provider(clients: contextlib.ExitStack) -> None:
    provider = redis.UsernamePasswordCredentialProvider("user", SECRET)
    client = clients.enter_context(redis.Redis("10.0.0.1", credential_provider=provider))
    assert settings(client).credential_provider is provider


def test_a_client_of_valkey_py_has_connections_of_redis_py(clients: contextlib.ExitStack) -> None:
    """Only errors of redis-py are understood. The protocol of 2 is a default of valkey-py, and no choice."""
    valkey = pytest.importorskip("valkey", reason="package valkey is not installed: pip install valkey")
    plain = clients.enter_context(valkey.Valkey("10.0.0.1", 7000, db=2, username="user", password=SECRET))
    connection = settings(plain)
    assert (target(plain).name, target(plain).protocol) == ("10.0.0.1:7000/2", None)
    assert type(connection) is redis.Connection
    assert (connection.username, connection.password) == ("user", SECRET)
    tls = settings(clients.enter_context(valkey.Valkey("10.0.0.1", ssl=True, ssl_ca_certs="/ca.crt")))
    assert (type(tls), tls.ca_certs) == (redis.SSLConnection, "/ca.crt")
    unix = settings(clients.enter_context(valkey.Valkey.from_url("unix:///run/valkey.sock?db=1")))
    assert (type(unix), unix.path, unix.db) == (redis.UnixDomainSocketConnection, "/run/valkey.sock", 1)
    with pytest.raises(ConfigError, match=r"masters.*blocking"):
        target(importlib.import_module("valkey.asyncio").Valkey(host="10.0.0.1"))


def test_a_client_with_a_class_of_connections_of_its_own(clients: contextlib.ExitStack) -> None:
    class Mine(redis.Connection):
        pass

    pool = redis.ConnectionPool(connection_class=Mine, host="10.0.0.1")
    assert type(settings(clients.enter_context(redis.Redis(connection_pool=pool)))) is Mine


def test_sentinel_clients_are_refused() -> None:
    service = Sentinel([("10.0.0.1", 26379)]).master_for("locks")
    with pytest.raises(ConfigError, match="Sentinel"):
        target(service)


def test_fakeredis_clients_are_refused() -> None:
    """Catches: a client that is accepted, and has no quorum for a reason that names an internal class."""
    fakeredis = pytest.importorskip("fakeredis", reason="fakeredis is not installed")
    with pytest.raises(ConfigError, match=r"fakeredis has no server.*embedded\.Masters"):
        target(fakeredis.FakeRedis())


def test_asyncio_clients_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"masters.*blocking.*Redis"):
        target(redis.asyncio.Redis(host="10.0.0.1"))
    with pytest.raises(ConfigError, match="masters"):
        FastRedlock(["redis://10.0.0.2", redis.asyncio.Redis(host="10.0.0.1")])


@cases("master", [None, 5, b"redis://10.0.0.1", object(), redis.Redis, []])
def test_anything_else_is_refused(master: Any) -> None:
    with pytest.raises(ConfigError, match="masters"):
        target(master)
