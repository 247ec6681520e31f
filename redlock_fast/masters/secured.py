"""TLS for a connection of redis-py. Apart, because ``ssl`` takes long to import."""

from __future__ import annotations

import socket
from typing import Any

from ..engine.tls import TlsSocket


def secured(connection: Any, sock: socket.socket, timeout: float) -> TlsSocket:
    """``sock`` with TLS, for ``_wrap_socket_with_ssl`` of ``connection``: its context, its checks."""
    ocsp, connection.ssl_validate_ocsp = connection.ssl_validate_ocsp, False
    try:
        # Only a TLS socket has the context of redis-py. One that is not connected makes no handshake.
        wrap = type(connection)._wrap_socket_with_ssl
        with socket.socket(sock.family) as unconnected, wrap(connection, unconnected) as model:
            made = TlsSocket(sock, model.context, model.server_hostname)
    finally:
        connection.ssl_validate_ocsp = ocsp
    try:
        made.handshake(timeout)
        if ocsp:
            _check_ocsp(connection, made)
    except BaseException:
        made.close()
        raise
    return made


def _check_ocsp(connection: Any, made: TlsSocket) -> None:
    from redis.ocsp import OCSPVerifier

    verifier: Any = OCSPVerifier(made, connection.host, connection.port, connection.ca_certs)  # type: ignore[no-untyped-call]
    if not verifier.is_valid():
        raise ConnectionError("ocsp validation error")
