"""The masters of tests/simulation do what the scripts do: the same requests to both, in random order."""

from __future__ import annotations

import random
from typing import Any

import pytest
import redis
from simulation.choices import recorded
from simulation.commands import understood
from simulation.invariants import Witness
from simulation.server import Server
from simulation.world import World

from redlock_fast.embedded import Masters
from redlock_fast.engine.pure.template import Template
from redlock_fast.wire.commands import Command, Verb, bulk
from redlock_fast.wire.dialect import Capabilities, dialect

STEPS = 240
#: So many steps between two looks at all that is there.
EACH = 4
#: Milliseconds: nothing ends during a test, and ttls differ by more than a busy machine takes.
TTLS = b"10000000", b"20000000", b"30000000"
NEAR = 2_000_000
OWNERS = b"one", b"two", b"three"


class Pair:
    """A real master and a simulated one."""

    def __init__(self, node: redis.Redis) -> None:
        self.node = node
        self.connection: Any = node.connection_pool.make_connection()
        self.commands = dialect(Capabilities())
        world = World(recorded([]))
        self.server = Server(world, Witness(world, 1), 0, 1.0, False)
        self.handlers = understood(self.server, None)

    def ask(self, verb: Verb, *args: bytes) -> None:
        answer = self._execute(self.commands[verb], args)
        simulated = self.handlers[verb][0](self.server, args, False)
        same = answer == simulated if answer <= 0 or simulated <= 0 else abs(answer - simulated) < NEAR
        assert same, f"{verb.name} {args}: {answer}, simulated {simulated}"

    def _execute(self, command: Command, args: tuple[bytes, ...]) -> int:
        self.connection.send_packed_command([Template(command).encode(args)])
        try:
            reply = self.connection.read_response()
        except redis.exceptions.NoScriptError:
            assert command.fallback is not None
            return self._execute(command.fallback, args)
        return int(reply in (b"OK", "OK")) if not isinstance(reply, int) else reply

    def compare(self) -> None:
        """What both have: keys and members, with about the same ends."""
        server, node, now = self.server, self.node, self.server.milliseconds()
        simulated = {key: {b"": left - now} for key, (_, left) in server.keys.items()}
        simulated |= {key: _ends(found, now) for key in list(server.sets) if (found := server.members(key))}
        seconds, micros = node.time()
        real_now = seconds * 1000 + micros // 1000
        real = {}
        for key in node.scan_iter():
            if node.type(key) == b"string":
                assert node.get(key) == server.owner(key)
                real[key] = {b"": node.pttl(key)}
            else:
                scores = dict(node.zrange(key, 0, -1, withscores=True))
                real[key] = _ends(scores, real_now) | {b"all of it": node.pttl(key)}
                simulated[key][b"all of it"] = server.sets[key].until - now
        assert real.keys() == simulated.keys()
        for key, ends in real.items():
            assert ends == pytest.approx(simulated[key], abs=NEAR), key


def _ends(scores: dict[bytes, float], now: int) -> dict[bytes, float]:
    """Of a set; tickets are no times."""
    return {member: score - now if score > NEAR else score for member, score in scores.items()}


@pytest.fixture
def pair(masters: Masters) -> Any:
    with redis.Redis(unix_socket_path=masters[0].socket_path, protocol=2) as node:
        node.flushall()
        pair = Pair(node)
        yield pair
        pair.connection.disconnect()
        node.flushall()


def plain(chance: random.Random) -> tuple[Any, ...]:
    args = b"a", chance.choice(OWNERS), chance.choice(TTLS)
    return chance.choice(
        [(Verb.ACQUIRE, *args), (Verb.EXTEND, *args), (Verb.EXTEND, *args), (Verb.RELEASE, *args[:2])]
    )


def readwrite(chance: random.Random) -> tuple[Any, ...]:
    verbs = [Verb.RW_READ, Verb.RW_WRITE, Verb.RW_ROLLBACK, Verb.RW_RELEASE, Verb.RW_EXTEND, Verb.RW_EXTEND]
    verb = chance.choice([*verbs, Verb.RW_DOWNGRADE, Verb.RW_RELEASE, Verb.RW_WATCH])
    if verb == Verb.RW_WATCH:
        return verb, b"{a}:", b"{a}:w", chance.choice([b"{a}:r", b"{a}:i"])
    owner = chance.choice(OWNERS)
    args = b"{a}:w", b"{a}:r", b"{a}:i", owner, owner, chance.choice(TTLS)
    return verb, *(args[:5] if verb == Verb.RW_RELEASE else args)


def semaphore(chance: random.Random) -> tuple[Any, ...]:
    key, owner = b"{a}:%d" % chance.randrange(3), chance.choice(OWNERS)
    keys = [bulk(b"{a}:%d" % number) for number in range(3)]
    return chance.choice(
        [
            (Verb.SLOT_ACQUIRE, key, owner, chance.choice(TTLS), b"{a}:", b"0", b"3"),
            (Verb.RELEASE, key, owner),
            (Verb.SLOT_WATCH, b"{a}:", b"*6\r\n", bulk(b"3") + b"".join(keys)),
        ]
    )


def multilock(chance: random.Random) -> tuple[Any, ...]:
    keys = sorted(chance.sample([b"a", b"b", b"c"], chance.randint(1, 3)))
    count, owner, ttl = len(keys), chance.choice(OWNERS), chance.choice(TTLS)
    head = b"*%d\r\n" % (5 + count), b"*%d\r\n" % (9 + count), b"%d" % count, b"%d" % (count + 1)
    verb = chance.choice([Verb.ACQUIRE_ALL, Verb.RELEASE_ALL])
    return verb, *head, b"".join(map(bulk, keys)), owner, ttl


def fair(chance: random.Random) -> tuple[Any, ...]:
    owner, ticket = chance.choice(OWNERS), chance.choice([b"", b"1", b"2", b"3"])
    head = b"a", owner, chance.choice(TTLS), b"{a}:q", b"{a}:e", owner
    return chance.choice(
        [
            (Verb.FAIR, *head, TTLS[0], ticket),
            (Verb.FAIR, *head, b"", b""),
            (Verb.FAIR_TICKET, *head, TTLS[0], ticket or b"4"),
            (Verb.FAIR_LEAVE, *head),
            (Verb.RELEASE, b"a", owner),
            (Verb.WATCH, b"{a}:b:" + owner),
        ]
    )


@pytest.mark.parametrize("kind", [plain, readwrite, semaphore, multilock, fair])
def test_simulated_master_does_what_a_real_one_does(pair: Pair, kind: Any) -> None:
    chance = random.Random(kind.__name__)
    for step in range(STEPS):
        verb, *args = kind(chance)
        pair.ask(verb, *args)
        if step % EACH == 0:
            pair.compare()
