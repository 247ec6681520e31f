"""A network on a bad day: the proxy of the pytest plugin, which also records, loses or strands bytes.

One thread moves all bytes, and what one side sent arrives in order, as TCP has it::

    with Proxy(master.port, jitter(seed=1, longest=0.02)) as proxy:
        client = FastRedlock([proxy.url, ...])
        proxy.cut()
"""

from __future__ import annotations

import random
import socket
from typing import Self

from support.scripted import Words, take_commands

from redlock_fast.integrations.pytest import proxy as plugin
from redlock_fast.integrations.pytest.proxy import Delay, Pipe, reset_socket

__all__ = ["Forgetting", "Pipe", "Proxy", "Reconnecting", "Stranding", "fixed", "jitter", "reset_socket"]


def fixed(seconds: float) -> Delay:
    return lambda: seconds


def jitter(seed: int, longest: float) -> Delay:
    """Anything from 0 to ``longest`` seconds for each piece."""
    chance = random.Random(seed)
    return lambda: chance.uniform(0.0, longest)


class Proxy(plugin.Proxy):
    """May be changed at any time. A context manager.

    ``refusing``: new connections are reset. ``deaf``: replies are lost, until the connections are cut.
    ``requests``: the commands that went through, if ``record``.
    """

    def __init__(self, upstream: int, delay: Delay = float, *, record: bool = False) -> None:
        self.refusing = False
        self.deaf = False
        self.requests: list[Words] = []
        self._unparsed: dict[Pipe, bytearray] = {}
        self._record = record
        super().__init__(upstream)
        self.delay = delay

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The URL for a client of a server without a password."""
        return f"redis://127.0.0.1:{self.port}"

    def sets(self) -> list[Words]:
        """The acquires among the recorded requests."""
        return [words for words in self.requests if words[0] == b"SET" and b"NX" in words]

    # --- in the proxy's thread ---

    def _accept(self) -> None:
        if self.refusing:
            reset_socket(self._listener.accept()[0])
        else:
            super()._accept()

    def _cut(self) -> None:
        super()._cut()
        # In the same turn: a client that connects at once would lose the replies to its probe.
        self.deaf = False

    def _received(self, pipe: Pipe, data: bytes) -> None:
        if pipe.from_client and self._record:
            unparsed = self._unparsed.setdefault(pipe, bytearray())
            unparsed += data
            self.requests.extend(take_commands(unparsed))
        elif self.deaf and data and not pipe.from_client:
            return
        super()._received(pipe, data)


class Reconnecting(Proxy):
    """Keeps the connections of clients when the server ends its own, and connects for the next request."""

    def _reset(self, pipe: Pipe) -> None:
        if self._closing or pipe.from_client or pipe.ended:
            super()._reset(pipe)
        else:  # the server reset it
            self._selector.unregister(pipe.source)
            pipe.ended = True

    def arrived(self, pipe: Pipe, data: bytes) -> None:
        if pipe.from_client and data and pipe.back.ended:
            pipe.sink.close()
            self._pipes.discard(pipe.back)
            pipe.sink = socket.create_connection(self._upstream)
            pipe.back = Pipe(pipe.sink, pipe.source, False)
            pipe.back.back = pipe
            self._watch(pipe.back)
        if data or pipe.from_client:
            super().arrived(pipe, data)


class Forgetting(Proxy):
    """Forgets connections as a NAT does: both sides stay open, and what is sent there is lost."""

    def lose_all(self) -> None:
        """Forget the connections that there are."""
        self._order(lambda: self._forgotten.update(self._pipes))

    def __init__(self, upstream: int) -> None:
        self._forgotten: set[Pipe] = set()
        super().__init__(upstream)

    def arrived(self, pipe: Pipe, data: bytes) -> None:
        if pipe not in self._forgotten:
            super().arrived(pipe, data)


class Stranding(Proxy):
    """Holds what belongs to the connections that there are, and passes what belongs to newer ones.

    The client gets no reply on the old connections, and closes them. What it wrote to them is delivered
    late, after what it wrote to their successors.
    """

    def __init__(self, upstream: int) -> None:
        self._stranded: set[Pipe] = set()
        super().__init__(upstream)

    def strand(self, *, requests: bool = True) -> None:
        """From now on hold the replies of the connections that there are; with ``requests`` these, too."""
        self._order(lambda: self._strand(requests))

    def _strand(self, requests: bool) -> None:
        self._stranded |= {pipe for pipe in self._pipes if requests or not pipe.from_client}

    def deliver(self) -> None:
        """Deliver the requests that were held, in their order, and the end of each connection."""
        self._order(self._deliver_held)

    def _deliver_held(self) -> None:
        for pipe, data in self._held:
            if pipe.from_client:
                self.carry(pipe, data)
        self._held.clear()
        self._stranded = {pipe for pipe in self._stranded if not pipe.from_client}

    def over(self) -> bool:
        """Whether the server has read all that was delivered, and closed its side of those connections."""
        return all(pipe.ended for pipe in self._stranded)

    def arrived(self, pipe: Pipe, data: bytes) -> None:
        if pipe in self._stranded:
            self._held.append((pipe, data))
        else:
            self.carry(pipe, data)
