"""One connection against a model of what it owes and keeps, over any sequence of events."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from support.fleet import PLAIN, TOKEN, TTL, Fleet
from support.scripted import Words, silent
from support.thorough import amount

from redlock_fast.engine.contract import Engine, Request
from redlock_fast.wire.commands import Verb

NOSCRIPT = b"-NOSCRIPT No matching script\r\n"
PUSH = b">2\r\n+invalidate\r\n_\r\n"


@dataclass
class Owed:
    """A request that the master owes a reply to, or that is kept for it."""

    verb: Verb
    key: bytes
    resend_for: bool
    script: bool = False  # sent as EVAL, for the second time

    def seen(self) -> tuple[str, bytes]:
        return "SET" if self.verb == Verb.ACQUIRE else "EVAL" if self.script else "EVALSHA", self.key


def seen(words: Words) -> tuple[str, bytes]:
    """What a master received, in short."""
    return words[0].decode(), words[1] if words[0] == b"SET" else words[3]


class OneLink(RuleBasedStateMachine):
    """Any sequence of requests, replies, breaks, detaches and attaches."""

    engine_class: type[Engine]

    @initialize()
    def begin(self) -> None:
        self.fleet = Fleet(self.engine_class, silent, attach=False, commands=PLAIN)
        self.attached = False
        self.number = 0
        self.owed: list[Owed] = []
        self.kept: list[Owed] = []
        self.expected: list[tuple[str, bytes]] = []
        self.replayed = 0

    @rule(verb=st.sampled_from([Verb.ACQUIRE, Verb.RELEASE]), resend_for=st.booleans())
    def submit(self, verb: Verb, resend_for: bool) -> None:
        self.number += 1
        one = Owed(verb, b"%d" % self.number, resend_for and verb == Verb.RELEASE)
        args = (one.key, TOKEN, TTL) if verb == Verb.ACQUIRE else (one.key, TOKEN)
        lagged = self.fleet.connection_state(0).lag > 0
        votes = self.fleet.ask(Request(verb, args, 1, 60.0 if one.resend_for else 0.0), need=0)
        if votes.sent:
            assert self.attached
            self.owed.append(one)
            self.expected.append(one.seen())
        else:
            # With need=0 a lagging master is sent only what is kept.
            assert not self.attached or (
                not one.resend_for and (lagged or self.fleet.connection_state(0).lag > 0)
            )
            self.kept += [one] if one.resend_for else []

    @precondition(lambda self: self.attached and self.owed)
    @rule(replies=st.lists(st.sampled_from([b"+OK\r\n", b"_\r\n", b"-ERR\r\n", NOSCRIPT, PUSH]), max_size=4))
    def answer(self, replies: list[bytes]) -> None:
        stream, due = b"", len(self.owed)  # without what these replies make the engine send
        for reply in replies:
            if reply == PUSH:
                stream += reply
                continue
            if due == 0:
                break
            due -= 1
            stream += reply
            one = self.owed.pop(0)
            if reply == NOSCRIPT and one.verb == Verb.RELEASE and not one.script:
                self.owed.append(Owed(one.verb, one.key, one.resend_for, script=True))
                self.expected.append(self.owed[-1].seen())
        self.fleet.session(0).send(stream)

    @precondition(lambda self: self.attached)
    @rule()
    def break_it(self) -> None:
        self.settled()
        self.fleet.session(0).close()
        self.fleet.until_broken(0)
        self.gone()
        self.fleet.detach(0)

    @precondition(lambda self: self.attached)
    @rule()
    def detach(self) -> None:
        self.settled()
        self.fleet.detach(0)
        assert [seen(words) for words in self.fleet.session(0).commands] == self.expected
        self.gone()

    def gone(self) -> None:
        self.kept = [one for one in self.owed if one.resend_for] + self.kept
        self.owed = []
        self.attached = False

    @precondition(lambda self: not self.attached)
    @rule()
    def attach(self) -> None:
        session = self.fleet.attach(0)
        self.attached = True
        self.owed, self.kept = self.kept, []
        self.replayed += len(self.owed)
        self.fleet.until(lambda: len(session.commands) >= len(self.owed), "the kept are sent")
        for one, words in zip(self.owed, session.commands, strict=True):
            # What was sent as EVAL before may start as EVALSHA again, or not.
            one.script = words[0] == b"EVAL"
        self.expected = [one.seen() for one in self.owed]
        self.settled()

    @invariant()
    def settled(self) -> None:
        if not hasattr(self, "fleet"):
            return
        if self.attached:
            session, count = self.fleet.session(0), len(self.expected)
            self.fleet.until(lambda: len(session.commands) >= count, "the commands arrive")
            self.fleet.until(
                lambda: self.fleet.connection_state(0).pending == len(self.owed), "the replies are taken"
            )
            assert [seen(words) for words in session.commands] == self.expected
        state = self.fleet.connection_state(0)
        assert (state.attached, state.broken) == (self.attached, "")
        assert (state.pending, state.resent, state.resend_dropped) == (len(self.owed), self.replayed, 0)

    def teardown(self) -> None:
        if hasattr(self, "fleet"):
            self.fleet.close()


def test_one_link_owes_and_keeps_what_the_model_says(engine_class: type[Engine]) -> None:
    machine = type("OneLinkOfThisEngine", (OneLink,), {"engine_class": engine_class})
    # Without shrinking: each failing example waits for its deadline.
    phases = (Phase.explicit, Phase.reuse, Phase.generate)
    how = settings(
        max_examples=amount(25, 60, twice=60), stateful_step_count=25, deadline=None, phases=phases
    )
    run_state_machine_as_test(machine, settings=how)
