"""Calls on TLS sockets, protected from errors that other TLS sockets of the same thread left behind.

OpenSSL has a queue of errors for each thread. With OpenSSL 3.6 a call that fails in the system (EPIPE,
ECONNRESET) leaves its error there, and CPython does not remove it. From then on each call of that thread
that would block, on any TLS socket, raises this error in place of ``SSLWantReadError``. So one broken
connection, perhaps of another library, would break the connections to all masters.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def clear_errors() -> None:
    """Empty the queue of this thread: CPython does so when a list of ciphers is refused."""
    with contextlib.suppress(ssl.SSLError):
        _context.set_ciphers("none")


def move(method: Callable[[T], R], argument: T) -> R:
    """``method(argument)``, once more if an error may be that of another socket.

    Such an error stands for "would block": no byte was moved. A connection that is broken fails again, and
    its first error is raised: it is the one that says why.
    """
    try:
        return method(argument)
    except ssl.SSLWantReadError:
        raise
    except OSError as error:
        first = error
        clear_errors()
    try:
        result = method(argument)
    except ssl.SSLWantReadError:
        raise
    except OSError:
        clear_errors()
        raise first from None
    if result == b"":  # after a fatal alert OpenSSL says that the connection has ended
        raise first
    return result
