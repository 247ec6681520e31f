"""Both ends of a TLS connection, with a certificate made for the occasion by the openssl command."""

from __future__ import annotations

import socket
import ssl
import subprocess
from pathlib import Path

from support.scripted import Pair, tcp_pair
from support.waiting import DEADLINE, start


def tls_pairs(directory: Path) -> Pair:
    """What makes the pairs; key and certificate go to ``directory``."""
    key, certificate = directory / "key.pem", directory / "certificate.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
    ]
    made = subprocess.run([*command, "-keyout", key, "-out", certificate], capture_output=True, check=False)
    assert made.returncode == 0, made.stderr
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(certificate, key)
    asking = ssl.create_default_context(cafile=str(certificate))

    def pair() -> tuple[socket.socket, socket.socket]:
        client, server = tcp_pair()
        shaking_hands = start(lambda: serving.wrap_socket(server, server_side=True))
        secured = asking.wrap_socket(client, server_hostname="localhost")
        return secured, shaking_hands.result(DEADLINE)

    return pair
