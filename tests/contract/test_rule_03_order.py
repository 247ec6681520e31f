"""Rule 3 and what goes out: exact bytes, in the order of submission, on every connection."""

from __future__ import annotations

import pytest
from support.fleet import (
    NATIVE,
    PLAIN,
    SOON,
    TOKEN,
    TTL,
    MakeFleet,
    acquire,
    del_words,
    release,
    set_words,
    unchecked,
)
from support.scripted import Answer, granting, once_all_came, silent
from support.waiting import start
from support.wire import render

from redlock_fast.engine.contract import FAULT, Request
from redlock_fast.wire.commands import Verb
from redlock_fast.wire.dialect import Capabilities

NOSCRIPT = b"-NOSCRIPT No matching script. Please use EVAL.\r\n"


@pytest.mark.parametrize("can", [Capabilities(), Capabilities(delex=True), Capabilities(True, True, True)])
def test_each_verb_goes_out_as_its_template_says(fleet: MakeFleet, can: Capabilities) -> None:
    arguments = {
        Verb.ACQUIRE: (b"key", TOKEN, TTL),
        Verb.RELEASE: (b"key", TOKEN),
        Verb.EXTEND: (b"key", TOKEN, TTL),
        Verb.EXISTS: (b"key",),
    }
    commands = unchecked(can)
    f = fleet(granting, commands=commands)
    for verb, args in arguments.items():
        assert f.ask(Request(verb, args, 1), need=1).granted == 1
    assert f.session(0).raw == b"".join(render(commands[verb], args) for verb, args in arguments.items())


@pytest.mark.parametrize("key", [b"", b"\r\n", b"\x00\xff\r\n$3\r\nfoo", b"k" * 9, b"k" * 10, b"k" * 100_000])
def test_arguments_may_hold_any_bytes(fleet: MakeFleet, key: bytes) -> None:
    f = fleet(granting)
    assert f.ask(Request(Verb.ACQUIRE, (key, b"\x00\r\n" * 6, b"1"), 1), need=1).granted == 1
    assert f.session(0).commands == [(b"SET", key, b"\x00\r\n" * 6, b"NX", b"PX", b"1")]


def test_more_arguments_than_the_template_has_slots_are_left_out(fleet: MakeFleet) -> None:
    f = fleet(granting)
    f.ask(Request(Verb.EXISTS, (b"key", TOKEN, TTL), 1), need=1)
    assert f.session(0).commands == [(b"EXISTS", b"key")]


def test_each_master_is_spoken_to_in_its_own_dialect(fleet: MakeFleet) -> None:
    f = fleet(granting, granting, granting, attach=False)
    f.attach(0, NATIVE)
    f.attach(1, unchecked(Capabilities(delex=True)))
    f.attach(2, PLAIN)
    f.ask(release(b"k", f.all), need=3)
    assert f.session(0).commands == [(b"DELIFEQ", b"k", TOKEN)]
    assert f.session(1).commands == [(b"DELEX", b"k", b"IFEQ", TOKEN)]
    assert f.session(2).raw == render(PLAIN[Verb.RELEASE], (b"k", TOKEN))


def test_commands_keep_the_order_of_submission(fleet: MakeFleet) -> None:
    f = fleet(silent, granting, granting)
    expected = []
    for number in range(100):
        key = b"%d" % number
        f.exchange([acquire(key, f.all), acquire(key + b"'", f.all, resend_for=30)], need=0)
        f.ask(release(key, f.all, resend_for=30), need=0)
        expected += [set_words(key), set_words(key + b"'"), del_words(key)]
    for master in range(3):
        commands = f.session(master).commands
        f.until(lambda c=commands: c[-1:] == expected[-1:], "everything arrives")  # type: ignore[misc]
        # One that came to lag was only sent what is kept.
        rest = iter(expected)
        assert all(words in rest for words in commands)
        assert len(commands) >= 200


def test_each_thread_keeps_its_order_on_every_connection(fleet: MakeFleet) -> None:
    f = fleet(granting, granting, granting)

    def work(thread: int) -> None:
        for number in range(60):
            key = b"%d-%d" % (thread, number)
            f.ask(acquire(key, f.all, resend_for=30), need=0 if number % 3 else 2)
            f.ask(release(key, f.all, resend_for=30), need=0 if number % 2 else 2)

    for future in [start(lambda thread=n: work(thread)) for n in range(6)]:  # type: ignore[misc]
        future.result(SOON)
    for master in range(3):
        commands = f.session(master).commands
        f.until(lambda c=commands: len(c) == 6 * 60 * 2, "everything arrives")  # type: ignore[misc]
        for thread in range(6):
            mine = [words[:2] for words in commands if words[1].startswith(b"%d-" % thread)]
            keys = [b"%d-%d" % (thread, number) for number in range(60)]
            assert mine == [pair for key in keys for pair in ((b"SET", key), (b"DELIFEQ", key))]


def without_scripts(then: bytes) -> Answer:
    """A server that lost its scripts."""
    return lambda words: NOSCRIPT if words[0] == b"EVALSHA" else then


def test_noscript_is_sent_again_as_eval_with_the_same_arguments(fleet: MakeFleet) -> None:
    f = fleet(without_scripts(b":1\r\n"), commands=PLAIN)
    votes = f.ask(release(b"k", 1), need=1)
    assert (votes.values, votes.details) == ((1,), {})
    template = PLAIN[Verb.RELEASE]
    assert template.fallback is not None
    args = (b"k", TOKEN)
    assert f.session(0).raw == render(template, args) + render(template.fallback, args)
    assert len(f.masters[0].sessions) == 1


def test_noscript_is_sent_again_only_once(fleet: MakeFleet) -> None:
    f = fleet(without_scripts(NOSCRIPT), commands=PLAIN)
    votes = f.ask(release(b"k", 1), need=1)
    assert (votes.values, votes.details) == ((FAULT,), {0: NOSCRIPT})
    f.masters[0].answer = granting
    assert f.ask(acquire(b"next", 1), need=1).granted == 1
    assert [words[0] for words in f.session(0).commands] == [b"EVALSHA", b"EVAL", b"SET"]


def test_only_the_master_that_lost_its_scripts_is_asked_again(fleet: MakeFleet) -> None:
    f = fleet(without_scripts(b":5\r\n"), granting, granting, commands=PLAIN)
    votes = f.ask(release(b"k", f.all), need=3)
    assert votes.values[0] == 5
    assert votes.granted == 3
    assert [len(f.session(n).commands) for n in range(3)] == [2, 1, 1]


def test_the_fallback_goes_behind_later_requests(fleet: MakeFleet) -> None:
    f = fleet(once_all_came(2, NOSCRIPT + b":5\r\n"), commands=PLAIN)
    future = start(lambda: f.exchange([release(b"k", 1), acquire(b"other", 1)], need=1))
    assert [words[0] for words in f.session(0).wait_commands(3)] == [b"EVALSHA", b"SET", b"EVAL"]
    f.session(0).send(b":9\r\n")
    released, acquired = future.result(SOON)
    assert (released.values, acquired.values) == ((9,), (5,))


def test_the_fallback_is_sent_though_no_caller_waits(fleet: MakeFleet) -> None:
    f = fleet(without_scripts(b":1\r\n"), commands=PLAIN)
    f.ask(release(b"k", 1, resend_for=30), need=0)
    f.until(lambda: len(f.session(0).commands) == 2, "the release is sent again")
    assert f.session(0).commands[1][0] == b"EVAL"
    f.until(lambda: f.connection_state(0).pending == 0, "both replies are taken")
    assert f.connection_state(0).attached


def test_noscript_in_pieces(fleet: MakeFleet) -> None:
    for cut in range(1, len(NOSCRIPT)):
        script: list[bytes] = [NOSCRIPT[:cut], NOSCRIPT[cut:]]
        f = fleet(lambda words, s=script: s if words[0] == b"EVALSHA" else b":4\r\n", commands=PLAIN)  # type: ignore[misc]
        assert f.ask(release(b"k", 1), need=1).values == (4,)
        f.close()


@pytest.mark.parametrize("reply", [b"-NOSCRIP\r\n", b"-ERR NOSCRIPT\r\n", b"+NOSCRIPT\r\n"])
def test_other_errors_are_not_taken_for_noscript(fleet: MakeFleet, reply: bytes) -> None:
    f = fleet(lambda words: reply, commands=PLAIN)
    assert f.ask(release(b"k", 1), need=1).details == {0: reply}
    assert len(f.session(0).commands) == 1
