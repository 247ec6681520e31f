"""No lock name injects a command, and no output contains a secret."""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from support.certificates import Certificates
from support.commands import command_lines
from support.dialling import none_dials
from support.forking import exit_code, fork_child
from support.listening import Listening
from support.scripted import Words
from support.waiting import DEADLINE, eventually, start

from redlock_fast import ConfigError, FastRedlock, QuorumUnavailable
from redlock_fast.algorithm.keys import OWN
from redlock_fast.algorithm.tokens import TOKEN_SIZE, new_token, new_tokens
from redlock_fast.embedded import Masters

MakeClient = Callable[..., FastRedlock]
Raw = Callable[[Masters], list[redis.Redis]]

SECRET = "hunter2-h%40rd"
SPOKEN = "hunter2-h@rd"

# --- names of locks ---------------------------------------------------------------------------------

ODD = [
    b"\r\n", b"\x00", b"*3\r\n$3\r\nDEL\r\n$1\r\nk\r\n", b"k\r\nFLUSHALL\r\n", b"\"'`$(x)", b"\xff\xfe",
    b"') redis.call('flushall') --", b"k\r\n*1\r\n$8\r\nFLUSHALL\r\n", b"%s %d %b", b"}{",
]  # fmt: skip


@pytest.mark.usefixtures("all_masters")
def test_a_name_is_a_key_and_nothing_else(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    one, nodes = connected(masters), raw(masters)

    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
    @given(name=st.one_of(st.sampled_from(ODD), st.binary(min_size=1, max_size=300)))
    def check(name: bytes) -> None:
        assume(not name.startswith((b"{", *OWN)))  # the library's own names are refused
        lock = one.lock(name, 60)
        assert lock.acquire()
        eventually(lambda: all(node.get(name) == lock.token for node in nodes), "it is on every master")
        assert all(node.keys() == [name] for node in nodes), "and nothing else is"
        assert lock.extend(50) > 0
        assert one.locked(name)
        assert lock.release()
        eventually(lambda: not any(node.dbsize() for node in nodes), "and now it is on none")

    for name in ODD:
        check = example(name=name)(check)
    check()
    assert not any(health.faults for health in one.health())


# --- secrets ----------------------------------------------------------------------------------------


def telltale(words: Words) -> bytes:
    """The reply of servers to a command that they do not know: they repeat it."""
    shown = b" ".join(b"`%b`" % word for word in words[1:])
    return b"-ERR unknown command `%b`, with args beginning with: %b\r\n" % (words[0], shown)


@pytest.fixture(scope="module")
def locked_up() -> Iterator[Masters]:
    with Masters(3, options=("--requirepass", "another")) as masters:
        yield masters


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG)
    return caplog


def chain(error: BaseException | None) -> Iterator[str]:
    """What a traceback shows of an error and of all errors behind it, suppressed or not."""
    while error is not None:
        yield from (str(error), repr(error), *traceback.format_exception(error))
        error = error.__cause__ or error.__context__


def refused(one: FastRedlock, match: str | None = None) -> QuorumUnavailable:
    """What an acquire raises once connecting has failed for every master."""
    one.connect(0.01)
    in_vain = {"down", "refused"}
    eventually(
        lambda: all(health.state in in_vain for health in one.health()), "connecting to all has failed"
    )
    with pytest.raises(QuorumUnavailable, match=match) as caught:
        one.lock("r").acquire(blocking=False)
    return caught.value


def everything_shown(one: FastRedlock, log: pytest.LogCaptureFixture) -> str:
    """All that people may get to see of a client that cannot connect."""
    error = refused(one)
    shown = [*chain(error), *(text for cause in error.causes for text in chain(cause))]
    shown += [repr(one), repr(one.lock("r")), repr(one.health()), str(one.health()), repr(one.stats())]
    shown += [log.text, *(repr(vars(record)) for record in log.records)]
    return "\n".join(shown)


def ways(port: int, stack: contextlib.ExitStack) -> list[tuple[str, Any]]:
    """A master's address with the secret in it, in every way that there is."""
    sentinel = f"redis+sentinel://user:{SECRET}@127.0.0.1:{port}/service?sentinel_password={SECRET}"
    provider = redis.UsernamePasswordCredentialProvider("user", SPOKEN)

    def made(**options: Any) -> redis.Redis:
        return stack.enter_context(redis.Redis(port=port, **options))

    return [
        ("URL", f"redis://user:{SECRET}@127.0.0.1:{port}"),
        ("URL without a user", f"redis://:{SECRET}@127.0.0.1:{port}?protocol=3"),
        ("query", f"redis://127.0.0.1:{port}?username=user&password={SECRET}"),
        ("client", made(username="user", password=SPOKEN)),
        ("client by URL", stack.enter_context(redis.Redis.from_url(f"redis://:{SECRET}@127.0.0.1:{port}"))),
        ("provider", made(credential_provider=provider)),
        ("Sentinel", sentinel),
    ]


@pytest.mark.parametrize("way", range(7))
@pytest.mark.parametrize("where", ["refused", "repeated"])
def test_no_secret_is_shown(
    locked_up: Masters, client: MakeClient, log: pytest.LogCaptureFixture, where: str, way: int
) -> None:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(Listening(telltale))
        port = locked_up[0].port if where == "refused" else server.port
        name, master = ways(port, stack)[way]
        shown = everything_shown(client([master]), log)
    assert f":{port}/0" in shown
    assert "hunter2" not in shown, name
    if where == "repeated":
        assert any(b"hunter2" in word for words in server.heard for word in words), "it was not even sent"


def test_bad_settings_show_none_either(client: MakeClient) -> None:
    with contextlib.ExitStack() as stack:
        for _, master in ways(1, stack):
            with pytest.raises(ConfigError) as caught:
                client([master, master])
            assert not any("hunter2" in text for text in chain(caught.value))


def test_options_of_embedded_servers_are_no_arguments() -> None:
    with Masters(1, options=("--requirepass", SPOKEN, "--appendonly", "no")) as masters:
        assert masters[0].ask(f"AUTH {SPOKEN}") == "+OK"
        lines = command_lines()
        assert any(masters.binary in line for line in lines)
        assert not any("hunter2" in line for line in lines)
        config = Path(masters[0].socket_path).parent / "config"
        assert "hunter2" in config.read_text()
        assert stat.S_IMODE(config.stat().st_mode) == 0o600


# --- TLS ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def secure(authority: Certificates, tls_server: str) -> Iterator[Callable[[str], Masters]]:
    """``secure(name)``: a master with TLS only, with that certificate."""
    with contextlib.ExitStack() as stack:
        made: dict[str, Masters] = {}

        def make(name: str) -> Masters:
            if name not in made:
                options = authority.server_options(name)
                made[name] = stack.enter_context(Masters(1, server=tls_server, options=options))
            return made[name]

        yield make
        none_dials()


Secure = Callable[[str], Masters]


@pytest.mark.parametrize(
    ("certificate", "trusted", "shown"),
    [
        ("server", "ca.crt", ""),
        ("server", "unknown_ca.crt", "certificate verify failed"),
        ("server", "", "certificate verify failed"),
        ("elsewhere", "ca.crt", "IP address mismatch|hostname"),
        ("expired", "ca.crt", "expired"),
    ],
)
def test_which_certificates_are_trusted(
    secure: Secure, authority: Certificates, client: MakeClient, certificate: str, trusted: str, shown: str
) -> None:
    master = secure(certificate)[0]
    query = f"?ssl_ca_certs={authority.path(trusted)}" if trusted else ""
    one = client([f"rediss://127.0.0.1:{master.port}{query}"])
    if not shown:
        with one.lock("r"):
            return
    refused(one, f"(?i){shown}")
    assert master.ask("DBSIZE") == ":0"


@pytest.mark.parametrize("option", ["ssl_ca_certs", "ssl_certfile", "ssl_keyfile"])
def test_a_file_that_cannot_be_read_is_named(
    secure: Secure, authority: Certificates, client: MakeClient, option: str
) -> None:
    files = {"ssl_ca_certs": "ca.crt", "ssl_certfile": "server.crt", "ssl_keyfile": "server.key"}
    paths = {name: authority.path(file) for name, file in files.items()} | {option: "/missing/file"}
    query = "&".join(f"{name}={path}" for name, path in paths.items())
    one = client([f"rediss://127.0.0.1:{secure('server')[0].port}?{query}"])
    refused(one, rf"No such file or directory\. \(cannot read the file of {option}\)")


def test_a_key_in_place_of_its_file_is_not_shown(
    secure: Secure, authority: Certificates, client: MakeClient, log: pytest.LogCaptureFixture
) -> None:
    certificate = {"ssl_ca_certs": authority.path("ca.crt"), "ssl_certfile": authority.path("server.crt")}
    key = Path(authority.path("server.key")).read_text()
    one = client([redis.Redis(port=secure("server")[0].port, ssl=True, ssl_keyfile=key, **certificate)])
    refused(one, "cannot read the file of ssl_keyfile")
    assert "PRIVATE KEY" not in everything_shown(one, log)


def test_a_file_that_openssl_ignores_disturbs_nothing(
    tls_server: str, authority: Certificates, client: MakeClient
) -> None:
    """Also for a server without HELLO, with which a second connection is made."""
    options = [*authority.server_options(), "--rename-command", "HELLO", ""]
    query = f"ssl_ca_certs={authority.path('ca.crt')}&ssl_ca_path=/missing"
    with (
        Masters(1, server=tls_server, options=options) as masters,
        client([f"rediss://127.0.0.1:{masters[0].port}?{query}"]).lock("r"),
    ):
        assert masters[0].ask("EXISTS r") == ":1"


def test_tls_is_not_spoken_to_a_plain_server(valkey: Masters, client: MakeClient) -> None:
    where = [f"rediss://user:{SECRET}@127.0.0.1:{master.port}" for master in valkey]
    # It takes the beginning of TLS for a command whose end is still to come, or for a bad one.
    refused(client(where, connect_timeout=0.5), r"(?i)ssl|closed|reset|timed? ?out")


# --- tokens -------------------------------------------------------------------------------------------


def test_tokens_of_threads_and_of_children_differ() -> None:
    new_token()  # the rest of what was drawn with it is there when the children begin
    reading, writing = os.pipe()

    def some() -> list[bytes]:
        return [new_token() for _ in range(500)] + new_tokens(500)

    def child() -> None:
        os.write(writing, b"".join([new_token() for _ in range(100)]))

    children = [fork_child(child) for _ in range(4)]
    threads = [start(some) for _ in range(8)]
    tokens = some() + [token for future in threads for token in future.result(DEADLINE)]
    assert [exit_code(pid) for pid in children] == [0] * 4
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        drawn = pipe.read()
    tokens += [drawn[at : at + TOKEN_SIZE] for at in range(0, len(drawn), TOKEN_SIZE)]
    assert len(tokens) == 9 * 1000 + 4 * 100
    assert len(set(tokens)) == len(tokens)
    assert {len(token) for token in tokens} == {TOKEN_SIZE}
