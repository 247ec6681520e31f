"""Text of a server cannot move a cursor, name a window, turn letters around or forge a line of a log."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.hostile import Talking, array, bulk
from support.waiting import eventually

from redlock_fast import FastRedlock, LockNotAcquired
from redlock_fast.cli import main
from redlock_fast.embedded import Masters

MakeClient = Callable[..., FastRedlock]

#: What one line can hold: an escape sequence, C1, bidirectional controls, line separators, no UTF-8.
LINE = "\x1b]0;x\x07\x9b2J\u202e\u2028\u2066\x85 2026 ERROR forged".encode() + b"\x9b\xff"
EVIL = b"\x1b]0;x\x07\n2026 ERROR forged\r\n" + LINE
INFO = b"".join(
    b"%b:%b\r\n" % (name, LINE)
    for name in (
        *(b"redis_version", b"run_id", b"valkey_version", b"role", b"redis_mode", b"master_replid"),
        b"maxmemory_policy",
    )
)
CONFIG = array(b"appendonly", b"yes", b"appendfsync", EVIL)


def sentinel(address: bytes, flags: bytes) -> bytes:
    state = (b"name", b"service", b"ip", address, b"port", b"1", b"flags", flags)
    return array(*state, b"num-other-sentinels", b"0")


#: What masters answer; the text of each shows ERROR somewhere.
MASTERS: dict[str, tuple[dict[bytes, bytes], dict[str, Any]]] = {
    "facts": ({b"INFO": bulk(INFO), b"CONFIG": CONFIG, b"ACQUIRE": b"-ERR %b\r\n" % LINE}, {}),
    "facts without a guard": ({b"INFO": bulk(INFO), b"CONFIG": CONFIG}, {"restart_guard": "off"}),
    "persistence": ({b"CONFIG": CONFIG}, {}),
    "role": ({b"ROLE": array(EVIL, b"0")}, {}),
    "error at dialling": ({b"HELLO": b"-NOAUTH %b\r\n" % LINE}, {"protocol": 3}),
    "error of RESP3 at dialling": ({b"HELLO": bulk(b"NOAUTH " + EVIL, b"!")}, {"protocol": 3}),
    "marker": ({b"EVAL": b"-ERR %b\r\n" % LINE}, {"restart_guard": "marker"}),
    "error": ({b"ACQUIRE": b"-OOM %b\r\n" % LINE}, {}),
    "error of RESP3": ({b"ACQUIRE": bulk(b"OOM " + EVIL, b"!")}, {}),
    "string": ({b"ACQUIRE": bulk(EVIL)}, {}),
    "line": ({b"ACQUIRE": b"+%b\r\n" % LINE}, {}),
    "no RESP": ({b"ACQUIRE": LINE + b"\r\n"}, {}),
    "verbatim": ({b"ACQUIRE": bulk(b"txt:" + EVIL, b"=")}, {}),
    "long": ({b"ACQUIRE": b"-ERR %b\r\n" % (b"\x1bx" * 400)}, {}),
}
#: Those that not every engine, or not every hiredis, reads.
NOT_SHOWN = ("no RESP", "error of RESP3 at dialling", "line", "string", "verbatim")
SENTINELS = {
    "error": bulk(b"ERR " + EVIL, b"!"),
    "line": b"-ERR %b\r\n" % LINE,
    "down": sentinel(EVIL, b"master,s_down"),
    "port": sentinel(b"127.0.0.1", b"master").replace(b"$1\r\n1\r\n", bulk(EVIL)),
}


@pytest.fixture
def talking() -> Iterator[Callable[[dict[bytes, bytes]], Talking]]:
    with contextlib.ExitStack() as stack:

        def make(replies: dict[bytes, bytes]) -> Talking:
            server = Talking(replies)
            stack.callback(server.close)
            return server

        yield make


Make = Callable[[dict[bytes, bytes]], Talking]


def everything_shown(client: FastRedlock, log: pytest.LogCaptureFixture) -> list[str]:
    """All that a program or a person may be shown."""
    client.connect(0.01)
    eventually(lambda: all(one.connections or one.error for one in client.health()), "connecting has ended")
    shown: list[str] = []
    try:
        client.lock("r").acquire(blocking=False)
    except LockNotAcquired as error:
        causes = getattr(error, "causes", ())
        shown += [text for one in (error, *causes) for text in (str(one), repr(one))]
        shown += [cause.cause for cause in causes]
    for health in client.health():
        shown += map(str, (getattr(health, name) for name in health.__slots__))
        shown.append(repr(health))
    shown += [text for record in log.records for text in (record.getMessage(), str(vars(record)))]
    return shown


def check(shown: list[str]) -> None:
    for text in shown:
        assert text.isprintable(), ascii(text)


@pytest.mark.parametrize("name", MASTERS)
def test_text_of_a_master(
    talking: Make, client: MakeClient, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    caplog.set_level(logging.DEBUG)
    replies, options = MASTERS[name]
    options = dict(options)
    query = f"?protocol={options.pop('protocol')}" if "protocol" in options else ""
    url = f"redis://127.0.0.1:{talking(replies).port}{query}"
    one = client([url], **options)
    shown = everything_shown(one, caplog)
    check(shown)
    assert name in NOT_SHOWN or any("\\x1b" in text for text in shown), "none of it was shown"
    assert all(len(health.error) < 500 for health in one.health())


@pytest.mark.parametrize("name", SENTINELS)
def test_text_of_a_sentinel(
    talking: Make, client: MakeClient, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    caplog.set_level(logging.DEBUG)
    server = talking({b"SENTINEL": SENTINELS[name]})
    shown = everything_shown(client([f"redis+sentinel://127.0.0.1:{server.port}/service"]), caplog)
    check(shown)
    assert any("no Sentinel has a master" in text for text in shown)


@pytest.mark.parametrize("command", ["status", "locks"])
@pytest.mark.parametrize("name", ["facts", "role", "error at dialling", "error", "string"])
def test_text_on_a_terminal(
    talking: Make, capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str, name: str
) -> None:
    impatient = tmp_path / "config.toml"
    impatient.write_text("[redlock-fast]\nconnect_timeout = 0.5\n")
    replies = {**MASTERS[name][0], b"SCAN": b"-ERR %b\r\n" % LINE}
    urls = [f"redis://127.0.0.1:{talking(replies).port}?protocol=3" for _ in range(3)]
    for form in ([], ["--json"]):
        main([command, "--config", str(impatient), "--masters", ",".join(urls), *form])
        shown = capsys.readouterr()
        lines = (shown.out + shown.err).split("\n")
        check(lines)
        assert not any(line.startswith("2026") for line in lines)


def test_names_on_a_terminal(talking: Make, capsys: pytest.CaptureFixture[str]) -> None:
    """Keys and tokens that any client may have written."""
    replies = {
        b"SCAN": b"*2\r\n" + bulk(b"0") + array(EVIL),
        b"GETRANGE": bulk(EVIL[:40]),
        b"PTTL": b":60000\r\n",
    }
    url = f"redis://127.0.0.1:{talking(replies).port}"
    for form in ([], ["--json"]):
        assert main(["locks", "--masters", url, *form]) == 0
        out = capsys.readouterr().out
        assert "forged" in out
        check(out.split("\n"))


@pytest.mark.usefixtures("all_masters")
def test_other_masters_are_shown_as_they_are(valkey: Masters, connected: MakeClient) -> None:
    one = connected(valkey)
    assert all(len(health.run_id) == 40 and health.version for health in one.health())
