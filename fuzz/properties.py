"""What must hold of any input: of a master's bytes, of a URL, of a configuration file.

Each takes the bytes that a fuzzer made, and raises AssertionError.
"""

from __future__ import annotations

import argparse
import os
import tempfile

from redlock_fast import FastRedlock
from redlock_fast.cli.settings import load
from redlock_fast.errors import ConfigError
from redlock_fast.locks.environment import MASTERS
from redlock_fast.masters.address import target
from redlock_fast.wire.resp import NEW, PARTIAL, ProtocolError, error_code, resume
from redlock_fast.wire.text import redacted

SECRET = "hunter2"
#: Where a password stands.
URLS = (
    "redis://:{}@10.0.0.1:6379/0",
    "rediss://user:{}@10.0.0.1",
    "redis://user:{}@10.0.0.1:port",
    "valkey://10.0.0.1:6379?password={}",
    "redis://10.0.0.1:6379/0?username=me&password={}&nonsense=1",
    "unix://me:{}@/run/redis.sock",
    "unix:///run/redis.sock?password={}&nonsense=1",
    "redis+sentinel://user:{}@10.0.0.1,10.0.0.2:7/locks/1",
    "redis+sentinel://10.0.0.1,10.0.0.2/locks?sentinel_password={}",
    "http://user:{}@10.0.0.1",
    "user:{}@10.0.0.1:6379",
)

Verdict = int | None


class Counted(bytes):
    """Counts the bytes that are searched, or copied."""

    work = 0

    def find(self, *arguments):
        found, (_, start, stop) = super().find(*arguments), arguments
        self.work += (stop if found < 0 else found + 1) - start
        return found

    def __getitem__(self, place):
        part = super().__getitem__(place)
        self.work += len(part) if isinstance(place, slice) else 1
        return part


def _framed(data: bytes, size: int) -> Verdict:
    """Where the first reply ends as it comes in pieces of that size, or PARTIAL; None if it is malformed."""
    scan, end, work, pieces = NEW, PARTIAL, 0, 0
    for came in range(size, len(data) + size, size):
        there, pieces = Counted(data[:came]), pieces + 1
        try:
            end, scan = resume(there, scan)
        except ProtocolError:
            return None
        assert scan.looked <= 2 * len(there), "looks at bytes again and again"
        work += there.work
        lines = data.count(b"\r", 0, came) + 1
        assert work <= 2 * len(there) + 8 * (lines + pieces), "copies bytes again and again"
        if end != PARTIAL:
            return end
    return end


def resp(data: bytes) -> None:
    """Replies end where they end in however many pieces they come."""
    while data:
        end = _framed(data, len(data))
        for size in (1, 7) if len(data) < 500 else (1000,):
            assert _framed(data, size) == end, f"in pieces of {size} it is another reply"
        if end is None or end == PARTIAL:
            return
        reply, data = data[:end], data[end:]
        assert reply.endswith(b"\r\n")
        error_code(reply)


def _text(data: bytes) -> str:
    """As the system hands over the words of a command, or the environment."""
    return data.decode(errors="surrogateescape")


def _texts(error: BaseException | None) -> list[str]:
    """The text of an error, and of all that a traceback prints besides."""
    shown = []
    while error is not None:
        shown.append(str(error))
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return shown


def _read(url: str) -> list[str]:
    """All texts that show it to users, as one master."""
    shown = [redacted(url)]
    try:
        shown.append(target(url).name)
    except ConfigError as error:
        shown += _texts(error)
    return shown


def url(data: bytes) -> None:
    """Any text is a master, or a ConfigError; no part of a password is shown. The first byte: which URL."""
    if SECRET.encode() in data:
        return
    awkward, _, tail = _text(data[1:]).partition("\0")
    _read(awkward + tail)
    form = URLS[(data or b"\0")[0] % len(URLS)]
    shown = _read(form.replace("{}", SECRET + awkward + SECRET) + tail)
    assert SECRET not in repr(shown), "shows a password"


def toml(data: bytes) -> None:
    """Any file makes a client, or a ConfigError without the password. ``data``: what is around them."""
    if SECRET.encode() in data:
        return
    before, _, after = data.partition(b"\0")
    masters = b'\nmasters = ["redis://user:%s@10.0.0.1:6379/0"]\n' % SECRET.encode()
    os.environ.pop(MASTERS, None)
    with tempfile.NamedTemporaryFile(suffix=".toml") as file:
        file.write(before + masters + after)
        file.flush()
        shown = []
        try:
            client = FastRedlock(**load(argparse.Namespace(config=file.name, masters=None)).client())
            shown.append(repr(client))
            client.close()
        except ConfigError as error:
            shown += _texts(error)
    assert SECRET not in repr(shown), "shows a password"
