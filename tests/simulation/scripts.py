"""What a master does at the commands of the other kinds of locks: the scripts of wire/scripts.py, in Python.

``tests/real/wire/test_scripts.py`` compares them with the scripts on a real server.
"""

from __future__ import annotations

from redlock_fast.wire.commands import Verb

from .requests import words_of
from .server import Server

Args = tuple[bytes, ...]

# --- read-write lock: args are writer, readers, intents, mine, place, ttl --------------------------------


def read(server: Server, args: Args, orphaned: bool) -> int:
    writer, readers, intents, mine, _, ttl = args
    server.purge(readers)
    server.purge(intents)
    known = mine in server.members(readers)
    granted = server.owner(writer) is None and (known or not server.members(intents))
    if granted:
        server.prolong_member(readers, mine, ttl)
    server.witness.asked(server.number, (writer[1:-3], mine), granted, orphaned)
    return int(granted)


def write(server: Server, args: Args, orphaned: bool) -> int:
    writer, readers, _, mine, _, ttl = args
    server.purge(readers)
    owner = server.owner(writer)
    granted = owner == mine or (owner is None and not server.members(readers))
    if owner == mine:
        server.prolong(writer, ttl)
    elif granted:
        server.put(writer, mine, ttl)
    server.witness.asked(server.number, (writer[1:-3], mine), granted, orphaned)
    return int(granted)


def give_back(server: Server, args: Args, orphaned: bool) -> int:
    """RW_ROLLBACK: the vote, but not the place."""
    writer, _, intents, mine, place, intent = args
    server.purge(intents)
    server.add(intents, place, server.milliseconds() + int(intent))
    server.outlive(intents, intent)
    found = server.owner(writer) == mine
    if found:
        server.remove(writer)
    server.witness.released(server.number, (writer[1:-3], mine), mine if found else None)
    return 1


def free(server: Server, args: Args, orphaned: bool) -> int:
    writer, readers, intents, mine, place = args[:5]
    found = server.owner(writer) == mine
    if found:
        server.remove(writer)
    ends = server.members(readers).get(mine)
    if ends is not None:
        found = found or ends > server.milliseconds()
        server.drop(readers, mine)
    server.drop(intents, place)
    server.witness.released(server.number, (writer[1:-3], mine), mine if found else None)
    return int(found)


def prolong(server: Server, args: Args, orphaned: bool) -> int:
    writer, readers, _, mine, _, ttl = args
    if server.owner(writer) == mine:
        server.prolong(writer, ttl)
    elif server.members(readers).get(mine, 0) > server.milliseconds():
        server.prolong_member(readers, mine, ttl)
    else:
        return 0
    server.witness.prolonged(server.number, (writer[1:-3], mine))
    return 1


def downgrade(server: Server, args: Args, orphaned: bool) -> int:
    """In one step. The reader has what the writer had left, if that is more."""
    writer, readers, intents, mine, place, ttl = args
    if server.owner(writer) != mine:
        return prolong(server, args, orphaned)
    server.prolong_member(readers, mine, b"%d" % max(server.left(writer), int(ttl)))
    server.remove(writer)
    server.drop(intents, place)
    server.witness.prolonged(server.number, (writer[1:-3], mine))
    return 1


def entry(server: Server, args: Args, orphaned: bool) -> int:
    """RW_WATCH: args are a prefix, the writer, and the set of readers that has to be empty besides."""
    _, writer, others = args
    server.track(writer)
    server.track(others)
    left = server.left(writer)
    last = max(server.members(others).values(), default=0) - server.milliseconds()
    return left if left != -2 else last if last > 0 else -2


# --- semaphore --------------------------------------------------------------------------------------------


def take(server: Server, args: Args, orphaned: bool) -> int:
    """Which slots are free goes with the vote."""
    key, token, ttl, name, first, count = args
    bits = 0
    for bit in range(int(count)):
        if server.owner(b"%b%d" % (name, int(first) + bit)) is None:
            bits |= 1 << bit
    granted = server.owner(key) is None
    if granted:
        server.put(key, token, ttl)
    server.witness.asked(server.number, (key, token), granted, orphaned)
    return bits + 1 if granted else -bits


def first_end(server: Server, args: Args, orphaned: bool) -> int:
    """SLOT_WATCH: of all slots."""
    keys = words_of(args[2])[1:]
    for key in keys:
        server.track(key)
    ends = [server.left(key) for key in keys]
    return min(ends)


# --- several resources ------------------------------------------------------------------------------------


def acquire_all(server: Server, args: Args, orphaned: bool) -> int:
    keys, token, ttl = words_of(args[4]), args[5], args[6]
    taken = next((number for number, key in enumerate(keys, 1) if server.owner(key) is not None), 0)
    for key in keys:
        if not taken:
            server.put(key, token, ttl)
        server.witness.asked(server.number, (key, token), not taken, orphaned)
    return -taken or 1


def release_all(server: Server, args: Args, orphaned: bool) -> int:
    token, found = args[5], 0
    for key in words_of(args[4]):
        owner = server.owner(key)
        if owner == token:
            server.remove(key)
            found += 1
        server.witness.released(server.number, (key, token), token if owner == token else None)
    return found


# --- fair lock --------------------------------------------------------------------------------------------


def fair(server: Server, args: Args, orphaned: bool) -> int:
    key, token, ttl, queue, entries, place, stay, ticket = args
    first = ticket and _line(server, queue)[:1] == [place] and server.members(queue)[place] == int(ticket)
    if first and stay and int(ttl) >= int(stay) and server.owner(key) is None:
        server.put(key, token, ttl)
        server.witness.asked(server.number, (key, token), True, orphaned)
        return 1
    if ticket and place in server.members(queue):
        server.add(queue, place, int(ticket))
    now, line = server.milliseconds(), _line(server, queue)
    while line and server.members(entries).get(line[0], 0) <= now:
        server.drop(queue, line[0])
        server.drop(entries, line[0])
        line = _line(server, queue)
        if line:
            _forget(server, queue, line[0])
    granted = server.owner(key) is None and (not line or line[0] == place)
    if granted:
        server.put(key, token, ttl)
    server.witness.asked(server.number, (key, token), granted, orphaned)
    if granted and line and stay:
        server.add(entries, place, now + min(int(stay), int(ttl)))
    return 1 if granted else _join(server, args) if stay else 0


def other_ticket(server: Server, args: Args, orphaned: bool) -> int:
    queue, place, ticket = args[3], args[5], args[7]
    known = server.members(queue).get(place)
    return 0 if known is not None and known == int(ticket or -1) else _join(server, args)


def _join(server: Server, args: Args) -> int:
    queue, entries, place, stay, ticket = args[3:]
    now = server.milliseconds()
    if ticket:
        for dead in [one for one, ends in server.members(entries).items() if ends <= now]:
            server.drop(queue, dead)
            server.drop(entries, dead)
    number = int(ticket) if ticket else 1 + max(server.members(queue).values(), default=0)
    server.add(queue, place, number)
    server.add(entries, place, now + int(stay))
    server.sets[queue].until = server.sets[entries].until = now + 4 * int(stay)
    line = _line(server, queue)
    rank = line.index(place)
    if rank > 0:
        server.put(_wait_key(queue, place), b"1", b"%d" % (4 * int(stay)))
    if ticket:
        _forget(server, queue, line[0])
    return -1 - (64 * number + min(rank, 63))


def _wait_key(queue: bytes, place: bytes) -> bytes:
    return queue[:-1] + b"b:" + place


def _forget(server: Server, queue: bytes, place: bytes) -> None:
    """Its wait key is no longer there."""
    if server.owner(_wait_key(queue, place)) is not None:
        server.remove(_wait_key(queue, place))


def _line(server: Server, queue: bytes) -> list[bytes]:
    """In the order of their tickets."""
    return sorted(server.members(queue), key=lambda one: (server.members(queue)[one], one))


def leave(server: Server, args: Args, orphaned: bool) -> int:
    key, token, _, queue, entries, place = args[:6]
    found = server.owner(key) == token
    if found:
        server.remove(key)
    server.drop(queue, place)
    server.drop(entries, place)
    for one in [place, *_line(server, queue)[:1]]:
        _forget(server, queue, one)
    server.witness.released(server.number, (key, token), token if found else None)
    return int(found)


SCRIPTS = {
    Verb.RW_READ: read,
    Verb.RW_WRITE: write,
    Verb.RW_ROLLBACK: give_back,
    Verb.RW_RELEASE: free,
    Verb.RW_EXTEND: prolong,
    Verb.RW_DOWNGRADE: downgrade,
    Verb.RW_WATCH: entry,
    Verb.SLOT_ACQUIRE: take,
    Verb.SLOT_WATCH: first_end,
    Verb.ACQUIRE_ALL: acquire_all,
    Verb.RELEASE_ALL: release_all,
    Verb.FAIR: fair,
    Verb.FAIR_LEAVE: leave,
    Verb.FAIR_TICKET: other_ticket,
}
