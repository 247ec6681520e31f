"""``redlock-fast status``: shows each master, and whether a quorum grants a lock now."""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import asdict, dataclass, replace
from typing import Any, get_args

from ..algorithm.master_lists import mask_of
from ..errors import LockNotAcquired
from ..locks.config import check_choice
from ..locks.options import CheckMasters
from ..masters.health import MasterHealth
from ..threads.client import FastRedlock
from . import exit_codes
from .settings import load
from .tables import show

#: Options. The times are longer than the defaults of a client, as for ``exec``.
DEFAULTS: dict[str, Any] = {"ttl": 5.0, "node_timeout": 1.0, "connect_timeout": 2.0, "check_masters": "auto"}
#: The command is called with any list of masters: it must not record that one, and reads the records itself.
FORCED: dict[str, Any] = {"decide": "all", "check_masters": "off"}
#: Number of locks to try: the first one uses connections that have just been made.
TRIES = 3
REFUSED = "a free lock was refused"
NO_VOTERS = "the masters that may vote for this list are no quorum"
RESTARTED = "too many masters were started a short while ago, and clients that ran before give these no vote"


@dataclass(frozen=True, slots=True)
class Status:
    """``usable``: a quorum granted a lock. ``problem``: otherwise the reason.

    ``refused``: a quorum refused a lock that is free. ``owner``: what that lock named; "" without a lock.
    ``kept_out``: for each master the seconds for which clients that ran before its start give it no vote.
    """

    usable: bool
    refused: bool
    quorum: int
    problem: str
    owner: str
    masters: list[MasterHealth]
    kept_out: tuple[float, ...] = ()


def run(options: argparse.Namespace) -> int:
    """Print the masters. Returns 0 if a quorum granted a lock, 1 if a quorum refused, 69 without a quorum.

    Returns 64 if the records of the masters refuse the settings, as for each client with them, and 75 if this
    new process could lock, but clients that ran before give too many masters no vote after a restart.
    """
    given = load(options).client(**DEFAULTS)
    check_choice("check_masters", given["check_masters"], get_args(CheckMasters))
    wrong = ""
    with FastRedlock(**given | FORCED) as client:
        status = ask(client)
        if given["check_masters"] != "off" and not client._core.policy.voters.lists.shards:
            status, wrong = by_records(client, status)
        if not given.get("assume_fresh", False):
            status = by_age(client, status)
    if options.json:
        print(json.dumps(asdict(status)))
    else:
        _table(status)
    if status.usable:
        return 0
    if wrong:
        return exit_codes.USAGE
    if status.problem == RESTARTED:
        return exit_codes.NOT_YET
    return exit_codes.FAILED if status.refused else exit_codes.UNAVAILABLE


def by_age(client: FastRedlock, status: Status) -> Status:
    """``status`` as clients see it that ran before the masters were started.

    This process is new: it meets each master for the first time, and does not know that it was restarted.
    """
    connector = client._core.masters.connector
    guard = connector.settings.guard
    kept_out = tuple(
        guard.kept_out(one.server.uptime, one.server.durable) if one.link.connections else 0.0
        for one in connector.roster.own().values()
    )
    each = zip(status.masters, kept_out, strict=True)
    votes = mask_of(n for n, (one, seconds) in enumerate(each) if _may_vote(one) and not seconds)
    if status.usable and not client._core.policy.voters.lists.is_quorum(votes):
        status = replace(status, usable=False, problem=RESTARTED)
    return replace(status, kept_out=kept_out)


def by_records(client: FastRedlock, status: Status) -> tuple[Status, str]:
    """``status`` as the records of the masters leave it, and why they refuse all such clients, or ""."""
    verdict = client._core.masters.connector.electorate.read_records()
    masters = [
        replace(one, no_vote=why, listed=False if why else True if verdict.ruled else None)
        for one, why in zip(status.masters, verdict.reasons, strict=True)
    ]
    votes = mask_of(n for n, one in enumerate(masters) if _may_vote(one))
    problem = verdict.wrong or status.problem
    if not problem and not client._core.policy.voters.lists.is_quorum(votes):
        problem = NO_VOTERS
    usable = status.usable and not problem
    refused = status.refused and not verdict.wrong
    return replace(status, usable=usable, refused=refused, problem=problem, masters=masters), verdict.wrong


def ask(client: FastRedlock) -> Status:
    """Connect, and try to acquire uncontended locks."""
    client.connect()
    client._core.masters.wait_until_tried(client._core.connect_timeout)
    problem = owner = ""
    for _ in range(TRIES):
        lock = client.lock(f"redlock-fast:status:{os.urandom(8).hex()}")
        try:
            problem = "" if lock.acquire(blocking=False) else REFUSED
            owner = lock.owner or owner
        except LockNotAcquired as error:
            problem = str(error)
        finally:
            lock.release()
    return Status(
        not problem,
        problem == REFUSED,
        client._core.policy.voters.lists.least,
        problem,
        owner,
        client.health(),
    )


def _table(status: Status) -> None:
    facts = [_facts(one) for one in status.masters]
    show(tuple(facts[0]), [tuple(one.values()) for one in facts])
    print()
    for one in status.masters:
        for why in filter(None, (one.error, one.no_vote)):
            print(f"{one.name}: {why}")
    for one, seconds in zip(status.masters, status.kept_out, strict=False):
        if seconds:
            kept_out = f"clients that ran before give it no vote for {seconds:.0f} s more"
            print(f"{one.name}: started {_duration(one.uptime)} ago: {kept_out}")
    able = sum(map(_may_vote, status.masters))
    if status.problem == RESTARTED:
        each = zip(status.masters, status.kept_out, strict=True)
        able = sum(_may_vote(one) and not seconds for one, seconds in each)
    what = f"{able} of {len(status.masters)} masters, a quorum is {status.quorum}"
    # Of an error of a lock: without its name, which is random, and without the causes, which are above.
    name, _, reason = status.problem.partition(": ")
    if status.owner:
        print(f"owner: {status.owner}")
    print(f"usable: {what}" if status.usable else f"NOT usable: {what}; {(reason or name).split(';')[0]}")


def _may_vote(one: MasterHealth) -> bool:
    return one.state == "connected" and not one.guard and not one.no_vote


def _facts(one: MasterHealth) -> dict[str, str]:
    """What is shown of a master, by column. "-": it is not known, or the master was never connected."""
    known = {
        "role": one.role,
        "server": f"{one.server} {one.version}".strip(),
        "round trip": f"{one.round_trip * 1000:.2f} ms" if one.round_trip else "",
        "guard": f"{one.guard:.1f} s" if one.guard else "none",
        "uptime": _duration(one.uptime),
        "persistence": one.persistence,
        "eviction": one.eviction,
        "push": "yes" if one.push else "no",
        "witness": "yes" if one.witness else "no",
        "release": one.release_path,
    }
    shown = {name: value if one.connections and value else "-" for name, value in known.items()}
    return {"master": one.name, "state": one.state, **shown}


def _duration(seconds: int) -> str:
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
