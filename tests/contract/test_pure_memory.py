"""The pure engine where memory runs out in the middle of a move of bytes: how many have moved is unknown."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from support.fleet import SOON, Fleet, MakeFleet, acquire, number_for, numbering
from support.waiting import start

from redlock_fast.engine.contract import Engine
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


def short_fleet(fleet: MakeFleet, masters: int) -> tuple[Fleet, list[Short]]:
    made: list[Short] = []

    def pair() -> tuple[socket.socket, socket.socket]:
        client, server = socket.socketpair()
        made.append(Short(fileno=client.detach()))
        return made[-1], server

    return fleet(*[numbering(master) for master in range(masters)], pair=pair), made


def mend(f: Fleet) -> None:
    """Connects the masters again whose connections ended."""
    f.engine.maintain()
    for master in range(f.size):
        if not f.connection_state(master).attached:
            f.reattach(master)


def ask_right(f: Fleet, key: bytes) -> None:
    votes = f.ask(acquire(key, f.all), f.size, timeout=SOON)
    assert votes.values == tuple(number_for(key, master) for master in range(f.size)), "its own replies"


@pytest.mark.parametrize("method", ["send", "recv"])
def test_no_reply_goes_to_another_request(fleet: MakeFleet, method: str) -> None:
    """Catches: a request that is sent twice, or a reply that is lost: all later replies are another's."""
    f, sockets = short_fleet(fleet, 1)
    ask_right(f, b"1")
    sockets[0].runs_out = method
    with pytest.raises(MemoryError):
        f.ask(acquire(b"2", f.all), 1, timeout=SOON)
    mend(f)
    for key in (b"3", b"4"):
        ask_right(f, key)


def test_memory_that_runs_out_in_the_clean_up_too(fleet: MakeFleet) -> None:
    """Catches: a thread that has left and still leads: attach, detach and other threads wait for ever."""
    f, sockets = short_fleet(fleet, 2)
    for sock in sockets:
        sock.runs_out = "send"
    with pytest.raises(MemoryError):
        f.ask(acquire(b"1", f.all), 2, timeout=SOON)
    assert not any(sock.runs_out for sock in sockets)

    def work() -> None:
        mend(f)
        ask_right(f, b"2")

    start(work).result(SOON)
