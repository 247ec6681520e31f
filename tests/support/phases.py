"""Records of the phases of a change, written as ``redlock-fast masters`` writes them."""

from __future__ import annotations

from typing import Any

import redis

from redlock_fast.embedded import Masters
from redlock_fast.masters.membership import KEY, PHASE_1, Record, decode, encode, members


def write_phase_1(masters: Masters, nodes: list[redis.Redis], old: list[int], new: list[int]) -> None:
    """The records of phase 1 of a change on every master, and cut connections."""
    records = {n: decode(nodes[n].get(KEY)) for n in old}  # type: ignore[arg-type]
    ids = {n: f"{n:032x}" for n in new} | {n: record.id for n, record in records.items()}
    after = members({ids[n]: f"{masters.urls[n].removeprefix('redis://')}/0" for n in new})
    of_old = records[old[0]]
    phase_1 = of_old._replace(epoch=2, steps=PHASE_1, old=of_old.new, new=after, in_force=True)
    for n, id in ids.items():
        write(nodes[n], phase_1.of(id))


def write(node: redis.Redis, record: Record) -> None:
    node.set(KEY, encode(record))
    node.client_kill_filter(_type="normal", skipme=True)


def write_terms(nodes: list[redis.Redis], **terms: Any) -> None:
    """Another phase."""
    for node in nodes:
        write(node, decode(node.get(KEY))._replace(**terms))  # type: ignore[arg-type]
