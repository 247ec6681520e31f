"""What a script costs, compared with a plain command: exchanges with five masters, in turns.

    python benchmarks/scripts.py [--rounds 15] [--count 400] [--engine native]

``extend``: the script that never shortens a lease, by ``SET key token IFEQ token PX ttl``. ``fence``: the
script that sets the key and counts, by ``SET key token NX PX ttl`` (each followed by a release, which is not
timed). All five replies are awaited. Prints the p50 of both and the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import socket
import statistics
import time
from collections.abc import Callable

import redis

from redlock_fast.embedded import Masters
from redlock_fast.engine import load
from redlock_fast.engine.contract import Engine, Request, Wait
from redlock_fast.wire.commands import Verb, command, scripts
from redlock_fast.wire.dialect import Capabilities, dialect

KEY, TOKEN, TTL = b"{benchmark}", b"t" * 20, b"30000"
#: The verb of ``SET ... IFEQ``, after all verbs of the package.
SET_IFEQ = len(Verb)
#: Key, token, ttl and the other arguments of FENCE: counter, retention, step.
FENCE = (KEY, TOKEN, TTL, KEY + b":f", b"60000", b"30000")
CAN = Capabilities(delifeq=True, expire_gt=True)
SECONDS = 10.0


def connected(engine: Engine, masters: Masters) -> None:
    """Attach every master, with its scripts loaded."""
    commands = (*dialect(CAN), command(b"SET", 0, 1, b"IFEQ", 1, b"PX", 2))
    for number, master in enumerate(masters):
        with redis.Redis(unix_socket_path=master.socket_path) as node:
            for script in scripts(commands):
                node.script_load(script.text)
        engine.attach(number, socket.create_connection(("127.0.0.1", master.port)), commands)


def ask(engine: Engine, verb: int, args: tuple[bytes, ...]) -> None:
    votes = engine.exchange([Request(verb, args, 0b11111)], 5, SECONDS, Wait.ALL)[0]
    assert votes.granted == 5, votes


def p50(engine: Engine, verb: int, args: tuple[bytes, ...], count: int, after: Callable[[], None]) -> float:
    """The median seconds of an exchange."""
    spent = []
    for _ in range(count):
        begin = time.perf_counter()
        ask(engine, verb, args)
        spent.append(time.perf_counter() - begin)
        after()
    return statistics.median(spent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--engine", choices=("native", "python"), default="native")
    options = parser.parse_args()
    engine = load(options.engine)(5, lambda: None)
    with Masters(5, server="valkey", password="") as masters:
        connected(engine, masters)

        def release() -> None:
            ask(engine, Verb.RELEASE, (KEY, TOKEN))

        def nothing() -> None:
            pass

        lease = (KEY, TOKEN, TTL)
        pairs = {
            "extend": ((Verb.EXTEND, lease), (SET_IFEQ, lease), nothing),
            "fence": ((Verb.FENCE, FENCE), (Verb.ACQUIRE, lease), release),
        }
        print("| script | its p50, µs | the command's p50, µs | ratio |\n|---|--:|--:|--:|")
        for name, (script, plain, after) in pairs.items():
            if after is nothing:
                ask(engine, Verb.ACQUIRE, lease)
            turns = [
                [p50(engine, verb, args, options.count, after) for verb, args in (script, plain)]
                for _ in range(options.rounds)
            ]
            if after is nothing:
                release()
            ratio = statistics.median(script / plain for script, plain in turns)
            ours, theirs = (statistics.median(column) * 1e6 for column in zip(*turns, strict=True))
            print(f"| {name} | {ours:.0f} | {theirs:.0f} | {ratio:.2f} |", flush=True)
    for number in range(5):
        sock = engine.detach(number)
        if sock is not None:
            sock.close()


if __name__ == "__main__":
    main()
