"""Masters behind Sentinels: one clean partition, and the replica that is promoted on its other side.

Three services. The first has an old master and a replica; the other two are one server each. After the
partition client A reaches the old master and the second service, client B the replica and the third.
The Sentinels stand on B's side and promote the replica at any moment. A heal makes the old master a replica.
Time is discrete; leases last TTL ticks, min-replicas-max-lag is LAG ticks. The old master counts whole
seconds and looks once a second, so it stops up to LATE ticks after that.

Violation: A and B are inside their validity at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .checker import Case, Model, State, put

TTL, LAG, LATE, QUORUM = 2, 1, 1, 2
A, B = 1, 2
OLD, REPLICA, SECOND, THIRD = range(4)
SERVICE = (0, 0, 1, 2)
WHOLE, SPLIT, HEALED = range(3)
REACHED = {A: (OLD, SECOND), B: (REPLICA, THIRD)}


@dataclass(frozen=True)
class Rules:
    """``min_replicas``: the old master refuses writes LAG ticks after the last reply of a replica, or up to
    LATE ticks later.

    ``silence``: for how many ticks a client gives a promoted master no vote.
    """

    min_replicas: bool = True
    silence: int = TTL + LAG + LATE


# State: (servers, A, B, network, ticks since the partition, promoted). Server: (owner, ticks left).
# Client: (deadline, round, first server that it is connected to, silent ticks).
# Round: None or (age, mask of votes, mask of asked), both masks by service.


def sentinel(rules: Rules) -> Model:
    initial = (((A, TTL), (0, 0), (A, TTL), (0, 0)), (TTL, None, OLD, 0), (0, None, OLD, 0), WHOLE, 0, 0)

    def writable(server: int, network: int, since: int, promoted: int) -> bool:
        if server == OLD:
            return network == WHOLE or (network == SPLIT and not (rules.min_replicas and since > LAG + LATE))
        return server != REPLICA or bool(promoted)

    def tick(state: State) -> State:
        servers, a, b, network, since, promoted = state
        servers = tuple((owner, left - 1) if left > 1 else (0, 0) for owner, left in servers)
        clients = []
        for end, asked, server, silent in (a, b):
            if asked:
                asked = (asked[0] + 1, *asked[1:]) if asked[0] + 1 < TTL else None
            clients.append((max(0, end - 1), asked, server, max(0, silent - 1)))
        since = min(since + 1, LAG + LATE + 1) if network == SPLIT else since
        return (servers, *clients, network, since, promoted)

    def act(state: State, which: int) -> Iterator[tuple[str, State]]:
        servers, _, _, network, since, promoted = state
        end, asked, first, silent = state[which]

        def become(client: State, servers: State = servers) -> State:
            return put((servers, *state[1:]), which, client)

        if first == OLD and promoted and (which == B or network == HEALED):
            kept = asked and (asked[0], asked[1] & ~1, asked[2] | 1)
            label = f"client {which} connects to the promoted replica: no vote for {rules.silence} ticks"
            yield label, become((end, kept, REPLICA, rules.silence))
        if asked is None:
            if end or which == B:
                yield f"client {which} asks", become((end, (0, 0, 0), first, silent))
            return
        age, votes, sent = asked
        for server in (first, SECOND, THIRD):
            service = SERVICE[server]
            reached = network != SPLIT or server in REACHED[which]
            if sent >> service & 1 or not reached or not writable(server, network, since, promoted):
                continue
            owner, _ = servers[server]
            yes = owner == (which if end else 0)
            after = put(servers, server, (which, TTL)) if yes else servers
            counted = votes | (1 << service if yes and not (service == 0 and silent) else 0)
            client = (end, (age, counted, sent | 1 << service), first, silent)
            if counted.bit_count() >= QUORUM:
                client = (max(end, TTL - age), None, first, silent)
            verb = "extends" if end else "acquires"
            yield f"client {which} {verb} on server {server}: {yes}", become(client, after)

    def successors(state: State) -> Iterator[tuple[str, State]]:
        servers, a, b, network, since, promoted = state
        if not a[0]:
            return  # A's lease has ended: nothing can go wrong any more
        yield from act(state, A)
        yield from act(state, B)
        if network == WHOLE and servers[REPLICA] != servers[OLD]:
            yield "the replica catches up", (put(servers, REPLICA, servers[OLD]), *state[1:])
        if network == WHOLE:
            yield "the network splits", (servers, a, b, SPLIT, 0, promoted)
        if network == SPLIT and not promoted:
            yield "the Sentinels promote the replica", (servers, a, b, network, since, 1)
        if network == SPLIT:
            if promoted:
                copied = put(servers, OLD, servers[REPLICA])
                yield "the network heals, the old master becomes a replica", (copied, a, b, HEALED, since, 1)
            else:
                yield "the network heals", (servers, a, b, WHOLE, 0, 0)
        yield "one tick passes", tick(state)

    def violation(state: State) -> str | None:
        return "two holders" if state[1][0] and state[2][0] else None

    return Model(initial, successors, violation)


CASES = [
    Case("no min-replicas, no silence", lambda: sentinel(Rules(False, 0)), "two holders"),
    Case("no min-replicas, silence as ours", lambda: sentinel(Rules(False)), "two holders"),
    Case("min-replicas, no silence", lambda: sentinel(Rules(silence=0)), "two holders"),
    Case("min-replicas, silence of max_ttl", lambda: sentinel(Rules(silence=TTL)), "two holders"),
    Case(
        "min-replicas, silence of max_ttl + max lag",
        lambda: sentinel(Rules(silence=TTL + LAG)),
        "two holders",
    ),
    Case("ours: min-replicas, silence of max_ttl + max lag + late stop", lambda: sentinel(Rules())),
]
