"""What the tricks of a network fit."""

from __future__ import annotations

import socket

from chaos.network import REQUESTS, Network, delay_set, encode
from chaos.worker import KEY
from support.waiting import eventually

from redlock_fast.embedded import Masters
from redlock_fast.masters.marks import MARK_KEY


def test_a_set_is_kept_back_of_the_lock_and_not_of_a_mark() -> None:
    """A mark is written again with the same value on each new connection, and nothing releases it."""
    mark = encode((b"SET", MARK_KEY + b"id", b"1 0 - owner", b"NX", b"PX", b"60000"))
    acquire = encode((b"SET", KEY.encode(), b"token", b"NX", b"PX", b"1000"))
    with Masters(1, password="") as masters, Network(masters[0].port, 0) as network:
        network.add_trick(REQUESTS, delay_set)
        with socket.create_connection(("127.0.0.1", network.port)) as client:
            client.sendall(mark)
            assert client.recv(100) == b"+OK\r\n"
            assert not network.late_sets
            client.sendall(acquire)
            eventually(lambda: list(network.late_sets) == [b"token"], "the SET is kept back")
