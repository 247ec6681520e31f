"""Rule 5: a reply that its request cannot have is no vote, and breaks its connection."""

from __future__ import annotations

import pytest
from support.fleet import SOON, TOKEN, TTL, MakeFleet
from support.scripted import Words, always, granting, once_all_came, silent

from redlock_fast.engine.contract import FAULT, Request, Wait
from redlock_fast.wire.commands import Command, Reply, Verb
from redlock_fast.wire.dialect import Capabilities, RestartMarker, dialect

SCRIPTS = dialect(Capabilities())
NATIVE = dialect(Capabilities(delifeq=True, expire_gt=True, push=True))
MARKED = dialect(Capabilities(), RestartMarker("run", 60_000))
DIALECTS = {"scripts": SCRIPTS, "native": NATIVE, "marked": MARKED}

ARGS = (b"key", TOKEN, TTL, b"{key}:f", b"60000", b"0", b"1", b"2")
ERRORS = [b"-ERR no\r\n", b"!6\r\nERR no\r\n"]
STATUS = [(b"+OK\r\n", 1), (b"$-1\r\n", 0), (b"_\r\n", 0)]
INTEGERS = [(b":1\r\n", 1), (b":0\r\n", 0), (b":-3\r\n", -3), (b":9223372036854775807\r\n", (1 << 63) - 1)]
NEITHER = [
    b"+OKAY\r\n", b"+QUEUED\r\n", b"$2\r\nOK\r\n", b"*-1\r\n", b"*1\r\n+OK\r\n", b"#t\r\n", b",1\r\n",
    b"(1\r\n", b":9223372036854775808\r\n", b":-9223372036854775808\r\n", b"%0\r\n", b"~1\r\n:1\r\n",
    b"=6\r\ntxt:OK\r\n",
]  # fmt: skip


def is_set(template: Command) -> bool:
    """It is answered as SET is; everything else is answered with a number."""
    first = template.parts[0]
    return isinstance(first, bytes) and first.endswith(b"$3\r\nSET\r\n")


def asked(verb: Verb) -> Request:
    return Request(verb, ARGS, 1)


def replying(reply: bytes, skip: int) -> bytes:
    """The reply after the dropped ones."""
    return b"+OK\r\n" * skip + reply


#: All but those with arguments that are in RESP already.
VERBS = [verb for verb in Verb if all(isinstance(part, bytes) or part >= 0 for part in SCRIPTS[verb].parts)]
verbs = pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
dialects = pytest.mark.parametrize("name", DIALECTS)


@dialects
@verbs
def test_what_a_command_can_be_answered(fleet: MakeFleet, name: str, verb: Verb) -> None:
    commands = DIALECTS[name]
    template, skip = commands[verb], commands[verb].leading_replies
    f = fleet(silent, commands=commands)
    for reply, value in STATUS if is_set(template) else INTEGERS:
        if template.watch:
            continue  # its replies have other meanings: see test_watch
        f.masters[0].answer = once_all_came(skip + 1, replying(reply, skip))
        assert f.ask(asked(verb), need=1).values == (value,)
    for reply in ERRORS:
        f.masters[0].answer = once_all_came(skip + 1, replying(reply, skip))
        votes = f.ask(asked(verb), need=1)
        assert (votes.values, votes.details) == ((FAULT,), {0: reply})
    assert f.connection_state(0).attached


@dialects
@verbs
def test_what_it_cannot(fleet: MakeFleet, name: str, verb: Verb) -> None:
    commands = DIALECTS[name]
    skip = commands[verb].leading_replies
    others = INTEGERS if is_set(commands[verb]) else STATUS
    if commands[verb].reply == Reply.ANY:
        return  # as the next test says
    for reply in [*NEITHER, *(reply for reply, _ in others)]:
        f = fleet(silent, commands=commands)
        f.masters[0].answer = once_all_came(skip + 1, replying(reply, skip))
        votes = f.ask(asked(verb), need=1)
        assert votes.values == (FAULT,), f"{reply!r} counts as {votes.values[0]}"
        assert votes.details[0] == "protocol error: a reply that its request cannot have"
        assert "protocol error" in f.until_broken(0)
        f.close()


@dialects
def test_text_in_reply_to_the_owner_script(fleet: MakeFleet, name: str) -> None:
    """It is no vote, and the connection goes on."""
    f = fleet(silent, commands=DIALECTS[name])
    for reply in (b"$2\r\nOK\r\n", b"$0\r\n\r\n", b"+OKAY\r\n"):
        f.masters[0].answer = once_all_came(1, reply)
        votes = f.ask(asked(Verb.OWNER), need=1)
        assert votes.values == (FAULT,)
        assert votes.details[0] == reply
    assert f.connection_state(0).attached


def test_what_follows_is_not_counted_for_others(fleet: MakeFleet) -> None:
    """A reply too many, such as a master's that repeats one, moves all others by one."""
    f = fleet(silent, granting, commands=NATIVE)
    release = f.ask_in_background(Request(Verb.RELEASE, ARGS, 1), 1)
    f.session(0).wait_commands(1)
    acquire = f.ask_in_background(Request(Verb.ACQUIRE, ARGS, 1), 1)
    f.session(0).wait_commands(2)
    f.session(0).send(b"$-1\r\n:0\r\n+OK\r\n")
    assert (release.result(SOON).values[0], acquire.result(SOON).values[0]) == (FAULT, FAULT)
    assert not f.connection_state(0).attached
    assert f.ask(Request(Verb.ACQUIRE, ARGS, f.all), 1).values[1] == 1


def test_the_fallback_of_a_script_too(fleet: MakeFleet) -> None:
    def answer(words: Words) -> bytes:
        return b"-NOSCRIPT none\r\n" if words[0] == b"EVALSHA" else reply

    reply = b":7\r\n"
    f = fleet(answer, commands=SCRIPTS)
    assert f.ask(asked(Verb.FENCE), need=1).values == (7,)
    reply = b"+OK\r\n"
    assert f.ask(asked(Verb.FENCE), need=1).values == (FAULT,)
    assert "protocol error" in f.until_broken(0)


def test_of_one_that_came_late_too(fleet: MakeFleet) -> None:
    f = fleet(silent, granting, granting, commands=NATIVE)
    assert f.ask(Request(Verb.ACQUIRE, ARGS, f.all), need=2).granted == 2
    f.session(0).wait_commands(1)
    f.session(0).send(b":1\r\n")
    assert "protocol error" in f.until_broken(0)


def test_others_go_on(fleet: MakeFleet) -> None:
    f = fleet(always(b":1\r\n"), granting, granting, commands=NATIVE)
    votes = f.ask(Request(Verb.ACQUIRE, ARGS, f.all), need=2, wait=Wait.ALL)
    assert votes.values == (FAULT, 1, 1)
