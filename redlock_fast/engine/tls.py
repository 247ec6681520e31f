"""A TLS socket that does a bounded amount of work in each call.

A read of ``ssl.SSLSocket`` ends when there is plaintext, or when the socket is empty. A master that sends
only messages of TLS itself (KeyUpdate, NewSessionTicket) keeps a thread in this read without end. Here
OpenSSL gets RECEIVE_SIZE bytes in each call, and too many bytes without plaintext are an error.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import ssl
from typing import Any

from .clock import monotonic
from .contract import PROTOCOL_ERROR
from .tls_errors import move

#: The methods of the socket beneath. ``super()`` takes longer. Not sendall: that of gevent calls ``send``.
_recv, _send = socket.socket.recv, socket.socket.send

#: Bytes that one call gives to OpenSSL.
RECEIVE_SIZE = 1 << 14
#: Bytes of ciphertext that are accepted for each byte of plaintext. A record adds 90 at most, and a reply has
#: 4 at least.
CIPHERTEXT_PER_BYTE = 64
#: Bytes of ciphertext that are accepted beyond that. OpenSSL accepts 100 KB of certificates.
MAX_EXCESS = 1 << 17

#: Set at the end of the interpreter. OpenSSL then frees what a daemon thread would still use.
ended = False


class TlsSocket(socket.socket):
    """The client's end of TLS on ``sock``, which it takes over.

    If a signal handler raises inside of ``send`` or ``recv``, it is unknown which bytes have moved.
    """

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, server_hostname: str | None) -> None:
        context.options |= ssl.OP_NO_RENEGOTIATION  # otherwise a write may have to wait for input
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_hostname)
        self._unsent = b""  # ciphertext
        self._encrypted = 0  # bytes of plaintext that `_unsent` ends with, and `send` has not returned
        self._excess = 0
        self._failure: OSError | None = None  # of a record behind good ones, for the next call
        family, kind, number = sock.family, sock.type, sock.proto
        super().__init__(family, kind, number, fileno=sock.detach())

    def handshake(self, timeout: float) -> None:
        """Make the TLS connection within ``timeout`` seconds. Raises OSError."""
        deadline = monotonic() + timeout
        done = False
        while not done:
            _check_not_ended()
            try:
                self._tls.do_handshake()
                done = True
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                with contextlib.suppress(OSError):
                    self._flush()  # the alert: why
                raise
            if (left := deadline - monotonic()) <= 0:
                raise TimeoutError("timed out")
            self.settimeout(left)
            self._flush()
            if not done and not self._receive():
                self._incoming.write_eof()
        self._excess = 0

    def send(self, data: Any, *_: int) -> int:
        """As for a plain socket, but after BlockingIOError the next call must begin with the same bytes."""
        if not self._encrypted:
            self._encrypted = move(self._tls.write, data)  # at most one record
        self._flush()
        sent, self._encrypted = self._encrypted, 0
        return sent

    def sendall(self, data: Any, *_: int) -> None:
        view = memoryview(data)
        while view:
            view = view[self._tls.write(view) :]
        self._flush()

    def _flush(self) -> None:
        """Send all ciphertext. Raises BlockingIOError, and then the next call continues."""
        self._unsent += self._outgoing.read()
        while self._unsent:
            self._unsent = self._unsent[_send(self, self._unsent) :]

    def recv(self, size: int, *_: int) -> bytes:
        """The plaintext of one receive, b"" at the end. Raises BlockingIOError if there is none.

        Returns up to 32 KB: with a smaller ``size``, the rest may stay here, where poll does not show it.
        """
        if self._failure is not None:
            raise self._failure
        if not self._incoming.pending and not self._receive():
            return b""
        data = self._decrypt(size)
        if data is None:
            raise BlockingIOError(errno.EAGAIN, "no plaintext")
        self._excess = max(0, self._excess - CIPHERTEXT_PER_BYTE * len(data))
        return data

    def _receive(self) -> int:
        """Give what the socket has to OpenSSL. Return the number of bytes, 0 at the end."""
        if self._excess > MAX_EXCESS:
            raise OSError(f"{PROTOCOL_ERROR}: too much TLS without data")
        ciphertext = _recv(self, RECEIVE_SIZE)
        self._excess += len(ciphertext)
        return self._incoming.write(ciphertext)

    def _decrypt(self, size: int) -> bytes | None:
        """The plaintext of all whole records, b"" at the end, None if there is none."""
        records = []
        try:
            while self._incoming.pending and size:  # OpenSSL itself keeps the begin of a record
                _check_not_ended()
                records.append(move(self._tls.read, size))
                if not records[-1]:
                    self._report_end()
                    break
                size -= len(records[-1])
        except ssl.SSLWantReadError:
            pass
        except OSError as error:
            if not records:
                raise
            self._failure = error
            self._report_end()
        return b"".join(records) if records else None

    def _report_end(self) -> None:
        """Make poll report the socket: the next call returns the end, or raises the failure."""
        with contextlib.suppress(OSError):
            self.shutdown(socket.SHUT_RD)

    def getpeercert(self, binary_form: bool = False) -> Any:
        return self._tls.getpeercert(binary_form)

    def _refuse(self, *_: Any, **__: Any) -> Any:
        """The socket beneath would move bytes without TLS."""
        raise NotImplementedError

    makefile: Any = _refuse
    recv_into: Any = _refuse
    recvfrom: Any = _refuse
    recvfrom_into: Any = _refuse
    recvmsg: Any = _refuse
    recvmsg_into: Any = _refuse
    sendfile: Any = _refuse
    sendmsg: Any = _refuse
    sendto: Any = _refuse


def _check_not_ended() -> None:
    if ended:
        raise OSError("the interpreter ends")
