"""The pure engine where memory runs out in the middle of a move of bytes: how many have moved is unknown."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from support.fleet import SOON, Fleet, MakeFleet, acquire, number_for, numbering

from redlock_fast.engine.contract import FAULT, Engine, Wait
from redlock_fast.engine.pure.engine import PureEngine


@pytest.fixture
def engine_class() -> type[Engine]:
    return PureEngine


class Short(socket.socket):
    """A socket whose next ``send`` or ``recv`` moves bytes, and has no memory to say so."""

    runs_out = ""

    def _moved(self, method: str, result: Any) -> Any:
        if self.runs_out == method:
            self.runs_out = ""
            raise MemoryError
        return result

    def send(self, *data: Any) -> Any:
        return self._moved("send", super().send(*data))

    def recv(self, *size: Any) -> Any:
        return self._moved("recv", super().recv(*size))


def ask_right(f: Fleet, key: bytes) -> None:
    votes = f.ask(acquire(key, f.all), f.size, timeout=SOON)
    assert votes.values == tuple(number_for(key, master) for master in range(f.size)), "its own replies"


@pytest.mark.parametrize("method", ["send", "recv"])
def test_no_reply_goes_to_another_request(fleet: MakeFleet, method: str) -> None:
    """Catches: a request that is sent twice, or a reply that is lost: all later replies are another's. And an
    I/O thread that ends, or a connection that is lost for the failure of another one.
    """
    made: list[Short] = []

    def pair() -> tuple[socket.socket, socket.socket]:
        client, server = socket.socketpair()
        made.append(Short(fileno=client.detach()))
        return made[-1], server

    f = fleet(numbering(0), numbering(1), pair=pair)
    ask_right(f, b"1")
    made[0].runs_out = method
    votes = f.ask(acquire(b"2", f.all), 2, timeout=SOON, wait=Wait.ALL)
    assert votes.values[0] in (FAULT, number_for(b"2", 0)), "its own reply, if there is one"
    assert votes.values[1] == number_for(b"2", 1)
    assert f.until_broken(0)
    f.reattach(0)
    for key in (b"3", b"4"):
        ask_right(f, key)
