"""A TLS socket behaves like a plain one, and does a bounded amount of work in each call."""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from support.certificates import Certificates
from support.tls_flood import DATA, HANDSHAKE, TICKET, prepared
from support.waiting import DEADLINE, start

from redlock_fast.engine import tls
from redlock_fast.engine.tls import RECEIVE_SIZE, TlsSocket
from redlock_fast.masters.masters import end_tls

VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]
#: More bytes than the socket has room for.
MUCH = bytes(range(256)) * 8000


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


class Ends:
    """Both ends of a connection: ``ours`` and ``theirs``."""

    def __init__(self, certificates: Certificates, server: ssl.SSLContext, ca: str = "ca") -> None:
        ours, beneath = socket.socketpair()
        beneath.settimeout(DEADLINE)
        client = ssl.create_default_context(cafile=certificates.path(f"{ca}.crt"))
        self.ours = TlsSocket(ours, client, "127.0.0.1")
        self._accepting = start(lambda: server.wrap_socket(beneath, server_side=True))

    def connect(self) -> Ends:
        self.ours.handshake(DEADLINE)
        self.theirs: Any = self._accepting.result(DEADLINE)
        self.ours.settimeout(DEADLINE)
        return self

    def server_error(self) -> BaseException | None:
        return self._accepting.exception(DEADLINE)

    def received(self, size: int) -> bytes:
        """So many bytes, and what came with them."""
        data = b""
        while len(data) < size:
            try:
                data += self.ours.recv(1 << 16)
            except BlockingIOError:
                self.ours.settimeout(DEADLINE)
        return data

    def close(self) -> None:
        self.ours.close()
        if self.server_error() is None:
            self._accepting.result().close()


@pytest.fixture(params=VERSIONS, ids=str)
def ends(request: pytest.FixtureRequest, certificates: Certificates) -> Iterator[Ends]:
    context = certificates.server()
    context.maximum_version = request.param
    made = Ends(certificates, context).connect()
    yield made
    made.close()


@pytest.fixture
def flooding(certificates: Certificates, tmp_path: Path) -> Iterator[Ends]:
    """The server's end has records of its own."""
    made = Ends(certificates, prepared(certificates.server(), tmp_path)).connect()
    yield made
    made.close()


def read(sock: ssl.SSLSocket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += sock.recv(1 << 16)
    return data


def test_bytes_both_ways(ends: Ends) -> None:
    sending = start(lambda: ends.ours.sendall(MUCH))
    assert read(ends.theirs, len(MUCH)) == MUCH
    sending.result(DEADLINE)
    sending = start(lambda: ends.theirs.sendall(MUCH))
    assert ends.received(len(MUCH)) == MUCH
    sending.result(DEADLINE)


def test_socket_that_takes_a_part_of_a_record(ends: Ends) -> None:
    """Catches: ciphertext that is lost, or sent twice, between two calls."""
    ends.ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    ends.ours.setblocking(False)
    reading = start(lambda: read(ends.theirs, len(MUCH)))
    left, blocked = memoryview(MUCH), 0
    while left:
        try:
            left = left[ends.ours.send(left) :]
        except BlockingIOError:
            blocked += 1
    assert reading.result(DEADLINE) == MUCH
    assert blocked


def test_nothing_to_read(ends: Ends) -> None:
    ends.ours.setblocking(False)
    for _ in range(3):  # the first one may find tickets
        with pytest.raises(BlockingIOError):
            ends.ours.recv(1 << 16)


@pytest.mark.parametrize("ending", ["close_notify", "end of file"])
def test_end(ends: Ends, ending: str) -> None:
    ends.theirs.sendall(b"last")
    if ending == "close_notify":
        ends.theirs.setblocking(False)
        with pytest.raises(ssl.SSLWantReadError):
            ends.theirs.unwrap()
    if ending == "end of file":
        ends.theirs.shutdown(socket.SHUT_WR)
    assert ends.received(4) == b"last"
    assert select.select([ends.ours], [], [], DEADLINE)[0], "poll shows the end"
    assert ends.ours.recv(1 << 16) == b""


def test_record_in_parts(flooding: Ends) -> None:
    (record,) = islice(flooding.theirs.records(DATA, b"x" * 1000), 1)
    for at in range(0, len(record) - 100, 100):
        flooding.theirs.send_raw(record[at : at + 100])
        with pytest.raises(BlockingIOError):
            flooding.ours.recv(1 << 16)
    flooding.theirs.send_raw(record[at + 100 :])
    assert flooding.ours.recv(1 << 16) == b"x" * 1000


def test_damaged_record(flooding: Ends) -> None:
    (record,) = islice(flooding.theirs.records(DATA, b"x"), 1)
    flooding.theirs.send_raw(record[:-1] + bytes([record[-1] ^ 1]))
    with pytest.raises(ssl.SSLError, match=r"(?i)bad.record"):
        flooding.ours.recv(1 << 16)


def test_damaged_record_behind_a_good_one(flooding: Ends) -> None:
    """Both come at once. Catches: a reply that is lost."""
    good, bad = islice(flooding.theirs.records(DATA, b"x"), 2)
    flooding.theirs.send_raw(good + bad[:-1] + bytes([bad[-1] ^ 1]))
    assert flooding.ours.recv(1 << 16) == b"x"
    assert select.select([flooding.ours], [], [], DEADLINE)[0], "poll shows the failure"
    with pytest.raises(ssl.SSLError, match=r"(?i)bad.record"):
        flooding.ours.recv(1 << 16)


def test_no_tls_at_the_end_of_the_interpreter(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its daemon threads go on. Catches: one inside OpenSSL, which crashes the process."""
    ends.theirs.sendall(b"x")
    monkeypatch.setattr(tls, "ended", False)
    end_tls()
    with pytest.raises(OSError, match="interpreter ends"):
        ends.received(1)


def test_one_call_leaves_no_record(flooding: Ends) -> None:
    """Catches: a record that is there, while poll shows none."""
    records = b"".join(islice(flooding.theirs.records(DATA, b"x"), RECEIVE_SIZE // 23))
    flooding.theirs.send_raw(records)
    assert len(flooding.ours.recv(1 << 16)) == RECEIVE_SIZE // 23


def test_records_of_one_byte_are_no_flood(flooding: Ends) -> None:
    sending = start(
        lambda: [flooding.theirs.send_raw(r) for r in islice(flooding.theirs.records(DATA, b"x"), 20_000)]
    )
    assert flooding.received(20_000) == b"x" * 20_000
    sending.result(DEADLINE)


@pytest.mark.parametrize("now_and_then", [b"", b"x"], ids=["no data", "a byte now and then"])
def test_messages_of_tls_are_a_flood(flooding: Ends, now_and_then: bytes) -> None:
    server = flooding.theirs
    tickets, data = server.records(HANDSHAKE, TICKET * 100), server.records(DATA, now_and_then)

    def flood() -> None:
        while True:
            server.send_raw(next(tickets) + (next(data) if now_and_then else b""))

    sending = start(flood)
    with pytest.raises(OSError, match="protocol error: too much TLS without data"):
        flooding.received(1 << 20)
    flooding.ours.close()
    assert isinstance(sending.exception(DEADLINE), OSError)


def test_client_that_does_not_trust_the_server_says_so(certificates: Certificates) -> None:
    ends = Ends(certificates, certificates.server(), "unknown_ca")
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate verify failed"):
        ends.ours.handshake(DEADLINE)
    assert "alert unknown ca" in str(ends.server_error())
    ends.close()


def test_certificate_of_another_host(certificates: Certificates) -> None:
    ends = Ends(certificates, certificates.server("elsewhere"))
    with pytest.raises(ssl.SSLCertVerificationError, match="IP address mismatch"):
        ends.ours.handshake(DEADLINE)
    ends.close()
    assert ends.server_error()


@pytest.mark.parametrize(
    ("said", "error"), [(b"", TimeoutError), (b"+OK\r\n" * 20, ssl.SSLError), (None, ssl.SSLEOFError)]
)
def test_handshake_without_a_server(said: bytes | None, error: type[OSError]) -> None:
    ours, theirs = socket.socketpair()
    with theirs, TlsSocket(ours, ssl.create_default_context(), "127.0.0.1") as sock:
        if said is None:
            theirs.shutdown(socket.SHUT_WR)
        else:
            theirs.sendall(said)
        with pytest.raises(error):
            sock.handshake(0.05 if said == b"" else DEADLINE)


def test_handshake_with_a_server_that_dribbles() -> None:
    """Catches: a timeout that begins again with each byte."""
    ours, theirs = socket.socketpair()

    def dribble() -> None:
        theirs.sendall(b"\x16\x03\x03\x40\x00")  # a record that never ends
        while True:
            theirs.sendall(b"\x0b")
            time.sleep(0.01)

    with theirs, TlsSocket(ours, ssl.create_default_context(), "127.0.0.1") as sock:
        dribbling = start(dribble)
        with pytest.raises(TimeoutError):
            sock.handshake(0.2)
    assert isinstance(dribbling.exception(DEADLINE), OSError)


def test_methods_that_would_not_encrypt(ends: Ends) -> None:
    for method in ("makefile", "recv_into", "recvmsg", "sendmsg", "sendto"):
        with pytest.raises(NotImplementedError):
            getattr(ends.ours, method)(b"x")
