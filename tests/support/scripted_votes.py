"""The algorithm in virtual time: procedures driven by a script instead of masters."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from redlock_fast.algorithm.effects import Exchange, Sleep
from redlock_fast.algorithm.lease import Lease
from redlock_fast.algorithm.policy import Policy, VotingMasters
from redlock_fast.algorithm.quorum import Retry
from redlock_fast.engine.contract import Request, Votes
from redlock_fast.wire.commands import Verb

N = 5


class World:
    """Virtual time, and what comes back for each ACQUIRE, EXTEND or awaited RELEASE, in order."""

    def __init__(self, *answers: Votes | BaseException, takes: float = 0.001) -> None:
        self.now = 100.0
        self.answers = list(answers)
        self.takes = takes
        self.sent: list[Request] = []
        self.exchanges: list[Exchange] = []
        self.pauses: list[float] = []
        self.tokens = 0
        self.kept: list[Lease] = []

    def policy(self, **changes: Any) -> Policy:
        settings: dict[str, Any] = {
            "node_timeout": 0.05,
            "drift_factor": 0.01,
            "outage_timeout": 1.0,
            "retry": Retry(0.01, 0.1, None),
            "voters": VotingMasters(N),
            "clock": lambda: self.now,
            "chance": lambda: 0.5,
            "token": self.token,
        }
        return Policy(**{**settings, **changes})

    def token(self) -> bytes:
        self.tokens += 1
        return b"token-%014d" % self.tokens

    def run(self, procedure: Generator[Any, Any, Any]) -> Any:
        resume: Callable[[Any], Any] = procedure.send
        argument: Any = None
        while True:
            try:
                effect = resume(argument)
            except StopIteration as done:
                return done.value
            try:
                resume, argument = procedure.send, self.perform(effect)
            except BaseException as error:
                resume, argument = procedure.throw, error

    def perform(self, effect: Any) -> Any:
        if isinstance(effect, Sleep):
            self.pauses.append(effect.seconds)
            self.now += effect.seconds
            return None
        self.exchanges.append(effect)
        self.sent += effect.requests
        if effect.need == 0:
            return None
        self.now += min(self.takes, effect.timeout)
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return [answer]

    def verbs(self) -> list[Verb]:
        return [Verb(request.verb) for request in self.sent]
