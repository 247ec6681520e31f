"""Both ends of a TLS connection, with a certificate made for the occasion."""

from __future__ import annotations

import socket
import ssl

import pytest
from support.scripted import Pair
from support.waiting import DEADLINE, start


class Tls:
    """An authority and its certificate for localhost, for as many connections as one likes."""

    def __init__(self) -> None:
        trustme = pytest.importorskip("trustme")  # needs cffi, which not every Python has
        authority = trustme.CA()
        self._server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("localhost").configure_cert(self._server)
        self._client = ssl.create_default_context()
        authority.configure_trust(self._client)

    def over(self, beneath: Pair) -> Pair:
        """TLS over the sockets that ``beneath`` makes."""

        def pair() -> tuple[socket.socket, socket.socket]:
            client, server = beneath()
            shaking_hands = start(lambda: self._server.wrap_socket(server, server_side=True))
            secured = self._client.wrap_socket(client, server_hostname="localhost")
            return secured, shaking_hands.result(DEADLINE)

        return pair
