"""The server's end of TLS 1.3, with records that Python's ``ssl`` does not send."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

RECORD = 1 << 14
HANDSHAKE, DATA = 22, 23
#: NewSessionTicket, as short as it may be: lifetime, age, no nonce, a ticket of one byte, no extensions.
TICKET = bytes([4, 0, 0, 14]) + bytes(4) + bytes(4) + b"\0" + b"\0\1t" + b"\0\0"


class FloodingSocket(ssl.SSLSocket):
    """A socket of ``prepared``. ``flood``: send tickets until the client has gone."""

    sent = 0  # records

    def do_handshake(self, block: bool = False) -> None:
        super().do_handshake(block)
        lines = Path(self.context.keylog_filename or "").read_text().splitlines()
        self._secret = bytes.fromhex(
            next(x for x in lines[::-1] if x.startswith("SERVER_TRAFFIC")).split()[2]
        )

    def send(self, data: Any, flags: int = 0) -> int:
        self.sent += 1
        return super().send(data, flags)

    def send_raw(self, data: bytes) -> None:
        socket.socket.sendall(self, data)

    def flood(self) -> None:
        with contextlib.suppress(OSError):
            for record in self.records(HANDSHAKE, TICKET * (RECORD // len(TICKET))):
                self.send_raw(record)

    def records(self, kind: int, content: bytes) -> Iterator[bytes]:
        """``content`` in encrypted records, without end."""
        aead = pytest.importorskip("cryptography.hazmat.primitives.ciphers.aead")
        key, iv = self._expanded(b"key", 32), int.from_bytes(self._expanded(b"iv", 12), "big")
        encrypt = aead.AESGCM(key).encrypt
        inner = content + bytes([kind])
        header = b"\x17\x03\x03" + struct.pack(">H", len(inner) + 16)
        while True:
            nonce = (iv ^ self.sent).to_bytes(12, "big")
            self.sent += 1
            yield header + encrypt(nonce, inner, header)

    def _expanded(self, label: bytes, size: int) -> bytes:
        """HKDF-Expand-Label of RFC 8446."""
        hashes = pytest.importorskip("cryptography.hazmat.primitives.hashes")
        hkdf = pytest.importorskip("cryptography.hazmat.primitives.kdf.hkdf")
        info = struct.pack(">HB", size, 6 + len(label)) + b"tls13 " + label + b"\0"
        expanded: bytes = hkdf.HKDFExpand(hashes.SHA384(), size, info).derive(self._secret)
        return expanded


def prepared(context: ssl.SSLContext, folder: Path) -> ssl.SSLContext:
    """``context``, whose sockets can flood. Its connections begin one after another."""
    context.minimum_version = ssl.TLSVersion.TLSv1_3  # with TLS_AES_256_GCM_SHA384, which clients prefer
    context.num_tickets = 0
    context.keylog_filename = str(folder / "keys")
    context.sslsocket_class = FloodingSocket
    return context
