"""Both ends of a TLS connection, with a certificate made for the occasion."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

import pytest
from support.scripted import Pair
from support.tls_flood import prepared
from support.waiting import DEADLINE, start

from redlock_fast.engine.tls import TlsSocket


class Tls:
    """An authority and its certificate for localhost, for as many connections as one likes.

    ``version``: of TLS, by default the best. ``keys``: a folder; the server's sockets can flood.
    """

    def __init__(self, version: ssl.TLSVersion | None = None, keys: Path | None = None) -> None:
        trustme = pytest.importorskip("trustme")  # needs cffi, which not every Python has
        authority = trustme.CA()
        self._server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("localhost").configure_cert(self._server)
        self._client = ssl.create_default_context()
        authority.configure_trust(self._client)
        if version is not None:
            self._server.maximum_version = version
        if keys is not None:
            prepared(self._server, keys)

    def over(self, beneath: Pair) -> Pair:
        """TLS over the sockets that ``beneath`` makes."""

        def pair() -> tuple[socket.socket, socket.socket]:
            client, server = beneath()
            shaking_hands = start(lambda: self._server.wrap_socket(server, server_side=True))
            secured = TlsSocket(client, self._client, "localhost")
            secured.handshake(DEADLINE)
            return secured, shaking_hands.result(DEADLINE)

        return pair
