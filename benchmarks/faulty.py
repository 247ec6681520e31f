"""Proxies that inject network faults: one port for each server, one fault for each port.

    python faulty.py PORT...      prints its own ports; ends when its stdin does

Each line of stdin sets the behaviour of all ports, and is printed again when it is in effect:

    well      forwards everything
    refused   resets its connections, and stops listening
    cut       resets each connection when the client sends something
    half      resets each connection in the middle of the next reply
    garbage   replaces each reply by random bytes
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import sys

from redlock_fast.embedded import _free_port

FAULTS = ("refused", "cut", "half", "garbage")


class Front:
    """The proxy of one server."""

    def __init__(self, upstream: int) -> None:
        self.upstream = upstream
        self.port = _free_port()
        self.fault = "well"
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)

    async def turn(self, fault: str) -> None:
        self.fault = fault
        if fault == "refused" and self._server:
            self._server.close()
            self._server = None
        elif fault != "refused" and not self._server:
            await self.listen()
        if fault in ("refused", "cut"):
            for writer in self._writers:
                reset(writer)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            upstream, back = await asyncio.open_connection("127.0.0.1", self.upstream)
        except OSError:
            return reset(writer)
        self._writers |= {writer, back}
        with contextlib.suppress(asyncio.CancelledError):  # at the end of this process
            await asyncio.gather(self._requests(reader, back, writer), self._replies(upstream, writer))
        self._writers -= {writer, back}
        for one in (writer, back):
            one.close()

    async def _requests(
        self, reader: asyncio.StreamReader, back: asyncio.StreamWriter, client: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                if self.fault == "cut":
                    reset(client)
                    break
                back.write(data)
        back.close()

    async def _replies(self, upstream: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await upstream.read(1 << 16):
                if self.fault == "half":
                    writer.write(data[: len(data) // 2])
                    reset(writer)
                    break
                writer.write(os.urandom(len(data)) if self.fault == "garbage" else data)
        writer.close()


def reset(writer: asyncio.StreamWriter) -> None:
    """Send the buffered bytes, then RST instead of FIN."""
    sock = writer.get_extra_info("socket")
    if sock.fileno() >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def main(upstreams: list[int]) -> None:
    fronts = [Front(upstream) for upstream in upstreams]
    for front in fronts:
        await front.listen()
    print(*(front.port for front in fronts), flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        for front, fault in zip(fronts, line.split(), strict=True):
            await front.turn(fault)
        print(line, end="", flush=True)


if __name__ == "__main__":
    asyncio.run(main([int(port) for port in sys.argv[1:]]))
