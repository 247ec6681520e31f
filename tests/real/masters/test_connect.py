"""Masters that ask for credentials or for the client's certificate; a node of a Cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import redis
from support.certificates import Certificates
from support.dialling import none_dials
from support.waiting import eventually

from redlock_fast import FastRedlock, QuorumUnavailable
from redlock_fast.embedded import Masters

MakeClient = Callable[..., FastRedlock]


def refusal(client: FastRedlock) -> str:
    """Why its masters cannot be used."""
    client.connect(0.01)
    eventually(lambda: {m.state for m in client.health()} == {"down"}, "connecting has failed")
    with pytest.raises(QuorumUnavailable) as caught:
        client.lock("r").acquire(blocking=False)
    return str(caught.value)


# --- a Cluster ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("server", ["valkey", "redis"])
def test_a_node_of_a_cluster_is_refused(client: MakeClient, server: str) -> None:
    with Masters(1, server=server, options=("--cluster-enabled", "yes")) as masters:
        assert "it is a node of a Cluster" in refusal(client(masters))


# --- credentials --------------------------------------------------------------------------------------


class Rotating(redis.CredentialProvider):
    """Hands out the password of the hour."""

    def __init__(self) -> None:
        self.password = "first"
        self.asked = 0

    def get_credentials(self) -> tuple[str, str]:
        self.asked += 1
        return "locker", self.password


def test_each_connection_asks_for_credentials(client: MakeClient) -> None:
    """A password is changed and connections are cut: the next one has the new, and no call fails."""
    with Masters(3) as masters:
        for master in masters:
            assert master.ask("ACL SETUSER locker on >first ~* &* +@all") == "+OK"
        provider = Rotating()
        servers = [redis.Redis(port=master.port, credential_provider=provider) for master in masters]
        one = client(servers)
        one.connect()
        eventually(lambda: [m.connections for m in one.health()] == [1, 1, 1], "all are connected")
        with one.lock("r"):
            pass
        asked = provider.asked
        assert asked >= 3
        provider.password = "second"
        for master in masters:
            assert master.ask("ACL SETUSER locker resetpass >second") == "+OK"
            assert master.ask("CLIENT KILL USER locker").startswith(":")
        eventually(lambda: [m.connections for m in one.health()] == [2, 2, 2], "all are connected again")
        with one.lock("r"):
            pass
        assert provider.asked >= asked + 3
        for server in servers:
            server.close()


# --- certificates of clients --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wary(authority: Certificates, tls_server: str) -> Iterator[Masters]:
    """Masters that talk TLS only, and only to clients with a certificate of the authority."""
    options = ["--port", "0", "--tls-port", "{port}", "--tls-auth-clients", "yes"]
    for kind, file in (("cert", "server.crt"), ("key", "server.key"), ("ca-cert", "ca.crt")):
        options += [f"--tls-{kind}-file", authority.path(file)]
    with Masters(3, server=tls_server, options=options) as masters:
        yield masters
        none_dials()


def urls(masters: Masters, authority: Certificates, name: str) -> list[str]:
    query = f"ssl_ca_certs={authority.path('ca.crt')}"
    if name:
        query += f"&ssl_certfile={authority.path(name)}.crt&ssl_keyfile={authority.path(name)}.key"
    return [f"rediss://127.0.0.1:{master.port}?{query}" for master in masters]


def test_a_client_with_a_certificate(wary: Masters, authority: Certificates, client: MakeClient) -> None:
    one = client(urls(wary, authority, "server"))
    with one.lock("r", 20) as lock:
        assert lock.extend(20) > 0
        assert one.acquire("r", blocking=False) is None


@pytest.mark.parametrize("name", ["", "unknown_ca", "expired"])
def test_a_client_without_a_good_one(
    wary: Masters, authority: Certificates, client: MakeClient, name: str
) -> None:
    # TLS 1.3: the server says so after the handshake, or only closes the connection.
    text = refusal(client(urls(wary, authority, name), connect_timeout=5.0)).lower()
    assert any(word in text for word in ("certificate", "alert", "closed", "reset", "broken pipe", "eof")), (
        text
    )
    assert wary[0].ask("DBSIZE") == ":0"
