"""TLS as redis-py's settings have it, on a socket of this library."""

from __future__ import annotations

import socket
import ssl
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from redis.connection import Connection, SSLConnection
from support.certificates import Certificates
from support.listening import Listening
from support.scripted import Words

from redlock_fast.engine.tls import TlsSocket
from redlock_fast.masters.bounded_socket import connect_bounded


def reply(words: Words) -> bytes:
    return b"+OK\r\n"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def server(certificates: Certificates) -> Iterator[Listening]:
    with Listening(reply, certificates.server()) as listening:
        yield listening


def bounded(connection: Any) -> Any:
    return connect_bounded(connection, connection._connect, 20.0)


@pytest.fixture
def verified(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The certificates that OCSP looked at. redis.ocsp needs other packages, and OCSP a server."""
    seen: list[Any] = []

    class OCSPVerifier:
        def __init__(self, sock: Any, *where: Any) -> None:
            seen.append(sock.getpeercert(True))

        def is_valid(self) -> bool:
            return len(seen) < 2

    module = ModuleType("redis.ocsp")
    module.OCSPVerifier = OCSPVerifier  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "redis.ocsp", module)
    return seen


def test_ocsp(server: Listening, certificates: Certificates, verified: list[Any]) -> None:
    with open(certificates.path("server.crt")) as file:
        expected = ssl.PEM_cert_to_DER_cert(file.read())
    for valid in (True, False):
        connection = SSLConnection(
            host="127.0.0.1",
            port=server.port,
            ssl_ca_certs=certificates.path("ca.crt"),
            ssl_validate_ocsp=True,
        )
        if valid:
            bounded(connection).close()
        else:
            with pytest.raises(ConnectionError, match="ocsp validation"):
                bounded(connection)
    assert verified == [expected, expected]


def test_class_that_makes_tls_of_its_own(server: Listening, certificates: Certificates) -> None:
    made: list[ssl.SSLSocket] = []

    class Own(Connection):
        def _connect(self) -> ssl.SSLSocket:
            context = ssl.create_default_context(cafile=certificates.path("ca.crt"))
            sock: socket.socket = super()._connect()  # type: ignore[no-untyped-call]
            made.append(context.wrap_socket(sock, server_hostname="127.0.0.1"))
            return made[0]

    with pytest.raises(ConnectionError, match="TLS of its own"):
        bounded(Own(host="127.0.0.1", port=server.port))
    assert made[0].fileno() == -1


def test_settings_of_the_connection(server: Listening, certificates: Certificates) -> None:
    connection = SSLConnection(
        host="127.0.0.1",
        port=server.port,
        ssl_ca_certs=certificates.path("ca.crt"),
        ssl_min_version=ssl.TLSVersion.TLSv1_3,
        ssl_ciphers="ECDHE+AESGCM",
    )
    sock = bounded(connection)
    try:
        assert isinstance(sock.release(), TlsSocket)
        context = sock._tls.context
        assert context.minimum_version == ssl.TLSVersion.TLSv1_3
        assert not any("CHACHA20" in c["name"] for c in context.get_ciphers() if c["protocol"] != "TLSv1.3")
    finally:
        sock.close()
