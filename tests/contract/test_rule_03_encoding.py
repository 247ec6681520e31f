"""What goes out is what was meant, byte for byte, whatever bytes it is made of."""

from __future__ import annotations

import contextlib
import socket

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.fleet import LONG, NATIVE, PLAIN
from support.scripted import take_commands
from support.thorough import amount

from redlock_fast.engine.contract import Batch, Engine, Request
from redlock_fast.wire.commands import Dialect, Verb, command
from redlock_fast.wire.dialect import COMPARE_AND_EXTEND, Capabilities, RestartMarker, dialect

#: Such as would matter, if anything in a command were read as a part of it.
ODD = [
    b"\r\n", b"\x00", b"", b"%d %b %%", b"\"'`", b"$3\r\nfoo\r\n", b"*3\r\n$3\r\nDEL\r\n$1\r\nk\r\n",
    b"\xff\xfe", b"k\r\n*1\r\n$8\r\nFLUSHALL\r\n", b"{a}{b}", b"-ERR\r\n", b"\r", b"\n" * 9,
]  # fmt: skip
words = st.one_of(st.sampled_from(ODD), st.binary(max_size=300))

MARKED = dialect(Capabilities(), RestartMarker("%d\r\n", 1000))
#: Constants that look like formats and like RESP; arguments in another order, and twice.
ODD_COMMAND = command(b"100%", 2, b"\r\n%s", 0, 1, 0, b"$1\r\n")


def encoded(*parts: bytes) -> bytes:
    """A command in RESP; written apart from the engines."""
    out = b"*" + str(len(parts)).encode()
    for part in parts:
        out += b"\r\n$" + str(len(part)).encode() + b"\r\n" + part
    return out + b"\r\n"


def sent(engine_class: type[Engine], commands: Dialect, requests: list[Request] | Batch) -> bytes:
    """What a master receives."""
    engine = engine_class(1, lambda: None)
    client, server = socket.socketpair()
    received = b""
    with server, contextlib.closing(engine):
        engine.attach(0, client, commands)
        engine.exchange(requests, 0, LONG)
        server.settimeout(LONG)
        engine.close()
        while data := server.recv(1 << 16):
            received += data
    return received


@settings(max_examples=amount(60, 150, twice=150), deadline=None)
@given(args=st.tuples(words, words, words))
@example(args=(b"*3\r\n$3\r\nSET\r\n", b"\r\n", b"%b"))
def test_lock_commands(engine_class: type[Engine], args: tuple[bytes, ...]) -> None:
    key, token, ttl = args
    requests = [
        Request(Verb.ACQUIRE, args, 1),
        Request(Verb.RELEASE, (key, token), 1),
        Request(Verb.EXTEND, args, 1),
        Request(Verb.EXISTS, (key,), 1),
    ]
    assert sent(engine_class, NATIVE, requests) == b"".join(
        [
            encoded(b"SET", key, token, b"NX", b"PX", ttl),
            encoded(b"DELIFEQ", key, token),
            encoded(b"EVALSHA", COMPARE_AND_EXTEND.sha1, b"1", key, token, ttl),
            encoded(b"EXISTS", key),
        ]
    )


@settings(max_examples=amount(20, 50, twice=50), deadline=None)
@given(args=st.tuples(words, words, words))
def test_templates_of_any_bytes(engine_class: type[Engine], args: tuple[bytes, ...]) -> None:
    first, second, third = args
    expected = encoded(b"100%", third, b"\r\n%s", first, second, first, b"$1\r\n")
    assert sent(engine_class, (ODD_COMMAND,) * len(Verb), [Request(2, args, 1)]) == expected
    batch = Batch(2, ([first] * 3, second, [third] * 3), 3, 1)
    assert sent(engine_class, (ODD_COMMAND,) * len(Verb), batch) == expected * 3


def array(*parts: bytes) -> bytes:
    """The same without its header: what goes into a raw slot."""
    return encoded(*parts).split(b"\r\n", 1)[1] if parts else b""


@settings(max_examples=amount(20, 50, twice=50), deadline=None)
@given(keys=st.lists(words, max_size=5), token=words)
def test_raw_slots(engine_class: type[Engine], keys: list[bytes], token: bytes) -> None:
    # A script whose number of keys is not known beforehand: its header and its keys are arguments.
    script = command(~0, b"EVALSHA", b"100%", ~2, 1)
    one = command(b"MGET", ~2, 1, ~2)
    fallback = command(b"x", fallback=script)
    count = b"%d" % len(keys)
    args = (b"*%d\r\n" % (len(keys) + 4), token, array(count, *keys))
    expected = encoded(b"EVALSHA", b"100%", count, *keys, token)
    assert sent(engine_class, (script,), [Request(0, args, 1)]) == expected
    batch = Batch(0, ([args[0]] * 3, token, [args[2]] * 3), 3, 1)
    assert sent(engine_class, (script,), batch) == expected * 3
    single = (b"", token, array(b"key"))
    assert sent(engine_class, (one,), [Request(0, single, 1)]) == encoded(b"MGET", b"key", token, b"key")
    assert fallback.fallback == script


def test_a_raw_slot_needs_its_argument(engine_class: type[Engine]) -> None:
    engine = engine_class(1, lambda: None)
    client, server = socket.socketpair()
    with server, contextlib.closing(engine):
        engine.attach(0, client, (command(b"MGET", ~2),))
        [votes] = engine.exchange([Request(0, (b"a", b"b"), 1)], 1, LONG)
        assert votes.details == {0: "no such command"}


@pytest.mark.parametrize("commands", [PLAIN, MARKED], ids=["scripts", "marked"])
@settings(max_examples=amount(20, 50, twice=50), deadline=None)
@given(args=st.lists(words, min_size=8, max_size=8).map(tuple))
def test_scripts_get_their_arguments_whole(
    engine_class: type[Engine], commands: Dialect, args: tuple[bytes, ...]
) -> None:
    for verb in [verb for verb in Verb if verb != Verb.WAIT]:  # it has no arguments
        if any(isinstance(part, int) and part < 0 for part in commands[verb].parts):
            continue  # what is in RESP already has its own tests
        received = bytearray(sent(engine_class, commands, [Request(verb, args, 1)]))
        came = take_commands(received)
        assert not received
        assert came[0][0] in (b"SET", b"EVALSHA", b"EXISTS", b"PTTL", b"CLIENT")
        slots = [args[part] for part in commands[verb].parts if isinstance(part, int)]
        assert all(slot in came[commands[verb].leading_replies] for slot in slots)


def test_a_server_may_have_a_new_dialect_each_time(engine_class: type[Engine]) -> None:
    # Arguments as of a marker with the run_id, beside constant ones. More of them than are cached.
    engine = engine_class(2, lambda: None, lag_after=1e6)
    client, stays = socket.socketpair()
    with stays, contextlib.closing(engine):
        engine.attach(1, client, (command(b"stays", 0),))
        for number in range(600):
            client, server = socket.socketpair()
            with server:
                engine.attach(0, client, (command(b"%d" % number, 0),))
                engine.exchange([Request(0, (b"k",), 0b11)], 0, LONG)
                assert server.recv(100) == encoded(b"%d" % number, b"k")
                assert stays.recv(100) == encoded(b"stays", b"k")
                half = engine.detach(0)
                if half is not None:
                    half.close()
