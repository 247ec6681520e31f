"""Both ends of a TLS connection, with a certificate made for the occasion by the openssl command."""

from __future__ import annotations

import socket
import ssl
import subprocess
from pathlib import Path

from support.scripted import Pair
from support.waiting import DEADLINE, start

REQUEST = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]


class Tls:
    """Key and certificate in ``directory``, for as many connections as one likes."""

    def __init__(self, directory: Path) -> None:
        key, certificate = directory / "key.pem", directory / "certificate.pem"
        made = [*REQUEST, "-keyout", str(key), "-out", str(certificate)]
        subprocess.run(made, capture_output=True, check=True)
        self._server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._server.load_cert_chain(certificate, key)
        self._client = ssl.create_default_context(cafile=str(certificate))

    def over(self, beneath: Pair) -> Pair:
        """TLS over the sockets that ``beneath`` makes."""

        def pair() -> tuple[socket.socket, socket.socket]:
            client, server = beneath()
            shaking_hands = start(lambda: self._server.wrap_socket(server, server_side=True))
            secured = self._client.wrap_socket(client, server_hostname="localhost")
            return secured, shaking_hands.result(DEADLINE)

        return pair
