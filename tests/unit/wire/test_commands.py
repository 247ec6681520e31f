"""Exact bytes of every command for every kind of server."""

from __future__ import annotations

import hashlib
import re
from itertools import pairwise, product

from support.cases import cases
from support.wire import render

from redlock_fast.wire.commands import (
    WATCH_KEY,
    WATCH_PREFIX,
    Command,
    Reply,
    Script,
    Verb,
    bulk,
    command,
    script,
    scripts,
)
from redlock_fast.wire.dialect import (
    ACQUIRE_ALL,
    COMPARE_AND_DELETE,
    COMPARE_AND_EXTEND,
    COMPARE_AND_EXTEND_6,
    FENCE,
    MARKED_ACQUIRE,
    MARKED_ACQUIRE_ALL,
    RELEASE_ALL,
    WRITE,
    Acknowledgement,
    Capabilities,
    RestartMarker,
    dialect,
    watching,
)

ARGS = (b"key", b"token", b"1500", b"counter", b"86400000", b"place", b"3000", b"7")
#: Of those that take several keys, for two of them.
ALL_ARGS = (b"*7\r\n", b"*10\r\n", b"2", b"3", bulk(b"a") + bulk(b"b"), b"token", b"1500")
MARK = RestartMarker("run", 60_000)
DELETE = b"if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) end return 0"
EXTEND = (
    b"if redis.call('get',KEYS[1])~=ARGV[1] then return 0 end "
    b"redis.call('pexpire',KEYS[1],ARGV[2],'gt') return 1"
)
EXTEND_6 = (
    b"if redis.call('get',KEYS[1])~=ARGV[1] then return 0 end "
    b"if redis.call('pttl',KEYS[1])<tonumber(ARGV[2]) then redis.call('pexpire',KEYS[1],ARGV[2]) end return 1"
)
DELETE_SHA1 = b"fab5aabdaac7aab1eaa85bbed1724dee07d7744a"
EVERY_SERVER = [Capabilities(*flags) for flags in product([False, True], repeat=3)]


def words(text: bytes) -> bytes:
    """A command in RESP, from words between blanks."""
    return array(*text.split())


def array(*parts: bytes) -> bytes:
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)


def test_words_are_in_resp() -> None:
    assert words(b"SET key") == b"*2\r\n$3\r\nSET\r\n$3\r\nkey\r\n"
    assert bulk(b"") == b"$0\r\n\r\n"
    assert bulk(b"\r\n\x00") == b"$3\r\n\r\n\x00\r\n"


@cases("can", EVERY_SERVER)
def test_acquire_is_the_same_everywhere(can: Capabilities) -> None:
    acquire = dialect(can)[Verb.ACQUIRE]
    assert render(acquire, ARGS) == words(b"SET key token NX PX 1500")
    assert acquire.fallback is None


@cases("can", EVERY_SERVER)
def test_refill_asks_no_marker(can: Capabilities) -> None:
    """A master that casts no vote may have the key all the same: it only keeps others out."""
    assert dialect(can, MARK)[Verb.REFILL] == dialect(can)[Verb.REFILL] == dialect(can)[Verb.ACQUIRE]


@cases("can", EVERY_SERVER)
def test_exists_is_the_same_everywhere(can: Capabilities) -> None:
    exists = dialect(can)[Verb.EXISTS]
    assert (render(exists, ARGS), exists.fallback) == (words(b"EXISTS key"), None)


@cases("can", EVERY_SERVER)
def test_release(can: Capabilities) -> None:
    release = dialect(can)[Verb.RELEASE]
    if can.delifeq:
        assert render(release, ARGS) == words(b"DELIFEQ key token")
    elif can.delex:
        assert render(release, ARGS) == words(b"DELEX key IFEQ token")
    else:
        assert render(release, ARGS) == words(b"EVALSHA %b 1 key token" % DELETE_SHA1)
        assert release.fallback is not None
        assert render(release.fallback, ARGS) == array(b"EVAL", DELETE, b"1", b"key", b"token")
        assert release.fallback.fallback is None
    assert (release.fallback is None) == (can.delifeq or can.delex)


@cases("can", EVERY_SERVER)
def test_extend(can: Capabilities) -> None:
    extend = dialect(can)[Verb.EXTEND]
    script = EXTEND if can.expire_gt else EXTEND_6
    sha1 = hashlib.sha1(script).hexdigest().encode()
    assert render(extend, ARGS) == words(b"EVALSHA %b 1 key token 1500" % sha1)
    assert extend.fallback is not None
    assert render(extend.fallback, ARGS) == array(b"EVAL", script, b"1", b"key", b"token", b"1500")
    assert extend.fallback.fallback is None


@cases("can", EVERY_SERVER)
def test_release_path_names_the_command(can: Capabilities) -> None:
    assert render(dialect(can)[Verb.RELEASE], ARGS).split(b"\r\n")[2].decode() == can.release_path


def test_one_command_per_verb() -> None:
    assert list(Verb) == list(range(len(Verb)))
    assert len(dialect(Capabilities())) == len(Verb)


@cases("mark", [None, MARK])
@cases("can", EVERY_SERVER)
def test_what_each_is_answered(can: Capabilities, mark: RestartMarker | None) -> None:
    for verb, template in zip(Verb, dialect(can, mark), strict=True):
        first = template.parts[0]
        plain_set = isinstance(first, bytes) and first.endswith(b"$3\r\nSET\r\n")
        text = verb is Verb.OWNER
        assert template.reply == (Reply.STATUS if plain_set else Reply.ANY if text else Reply.INTEGER)
        assert template.fallback is None or template.fallback.reply == template.reply


def test_scripts_are_loaded_by_their_own_hash() -> None:
    assert (COMPARE_AND_DELETE.text, COMPARE_AND_DELETE.sha1) == (DELETE, DELETE_SHA1)
    assert (COMPARE_AND_EXTEND.text, COMPARE_AND_EXTEND_6.text) == (EXTEND, EXTEND_6)
    for one in scripts((*dialect(Capabilities()), *dialect(Capabilities(), MARK))):
        assert one.sha1 == hashlib.sha1(one.text).hexdigest().encode()


def test_neighbouring_constants_are_joined() -> None:
    template = command(b"A", b"BB", 0, b"C", b"D", 1, 2, b"E")
    assert template == Command(
        (b"*8\r\n$1\r\nA\r\n$2\r\nBB\r\n", 0, b"$1\r\nC\r\n$1\r\nD\r\n", 1, 2, b"$1\r\nE\r\n")
    )


@cases("can", EVERY_SERVER)
def test_templates_hold_no_two_constants_in_a_row(can: Capabilities) -> None:
    for template in dialect(can):
        kinds = [type(part) for part in template.parts]
        assert all(pair != (bytes, bytes) for pair in pairwise(kinds))


@cases("can", EVERY_SERVER)
def test_arguments_go_out_whatever_bytes_they_hold(can: Capabilities) -> None:
    args = (b"\r\n$1\r\n", b"\x00" * 20, b"1", b"counter", b"2", b"$-1\r\n", b"7", b"8")
    for template in dialect(can):
        rendered = render(template, args)
        slots = [part for part in template.parts if isinstance(part, int)]
        assert slots or template == dialect(can)[Verb.WAIT]
        assert all((bulk(args[slot]) if slot >= 0 else args[~slot]) in rendered for slot in slots)


@cases("can", EVERY_SERVER)
def test_what_takes_back_a_grant(can: Capabilities) -> None:
    """The same arguments that acquired it, so that an engine can undo without knowing what a lock is."""
    for mark in (None, MARK):
        commands = dialect(can, mark)
        undo = {verb: one.rollback_verb for verb, one in enumerate(commands) if one.rollback_verb is not None}
        free = dict.fromkeys((Verb.RW_READ, Verb.RW_WRITE, Verb.RW_ROLLBACK), Verb.RW_RELEASE)
        release = dict.fromkeys((Verb.ACQUIRE, Verb.FENCE, Verb.SLOT_ACQUIRE, Verb.REFILL), Verb.RELEASE)
        others = {Verb.FAIR: Verb.FAIR_LEAVE, Verb.ACQUIRE_ALL: Verb.RELEASE_ALL}
        assert undo == {**release, **free, **others}
        assert commands[Verb.RELEASE] == dialect(can)[Verb.RELEASE]


@cases("mark", [None, MARK])
@cases("can", EVERY_SERVER)
def test_what_waits_for_replicas(can: Capabilities, mark: RestartMarker | None) -> None:
    """Each command that grants or lengthens a lease, on each server, also as its fallback; no release does.

    Catches: a kind of lock, or the EVAL of a server that lost its scripts, whose grants count at once.
    """
    commands = dialect(can, mark, Acknowledgement(2, 16, b"p:wait"))
    plain = dialect(can, mark)
    waiting = {verb for verb, one in enumerate(commands) if one.confirm_verb is not None}
    grants = {Verb.ACQUIRE, Verb.EXTEND, Verb.FENCE, Verb.RAISE_FENCE, Verb.FAIR, Verb.ACQUIRE_ALL}
    grants |= {Verb.REFILL, Verb.RW_READ, Verb.RW_WRITE, Verb.RW_EXTEND, Verb.RW_DOWNGRADE, Verb.SLOT_ACQUIRE}
    assert waiting == grants
    for verb in grants:
        one, same = commands[verb], plain[verb]
        fallback = one.fallback and one.fallback._replace(confirm_verb=None)
        assert one._replace(confirm_verb=None, fallback=fallback) == same
        assert one.confirm_verb == Verb.WAIT
        assert one.fallback is None or one.fallback.confirm_verb == Verb.WAIT
    assert all(one == plain[verb] for verb, one in enumerate(commands) if verb not in {*grants, Verb.WAIT})
    assert all(one.confirm_verb is None and not one.replicas for one in plain)
    write = array(b"EVAL", WRITE.text, b"1", b"p:wait", b"86400000")
    assert render(commands[Verb.WAIT], ()) == write + array(b"WAIT", b"2", b"16")
    assert (commands[Verb.WAIT].leading_replies, commands[Verb.WAIT].replicas) == (1, 2)


def test_scripts_call_arguments_by_name() -> None:
    assert script("a b", "c", b"return 1") == Script(b"local a,b,c=KEYS[1],KEYS[2],ARGV[1]\nreturn 1", 2)


def test_fencing_is_a_script() -> None:
    fence = dialect(Capabilities(True, False, True))[Verb.FENCE]
    words = (b"2", b"key", b"counter", b"token", b"1500", b"86400000", b"place")
    assert render(fence, ARGS) == array(b"EVALSHA", FENCE.sha1, *words)
    assert fence.fallback is not None
    assert render(fence.fallback, ARGS) == array(b"EVAL", FENCE.text, *words)


def test_a_marked_master_compares_its_marker_first() -> None:
    acquire = dialect(Capabilities(True, False, True), MARK)[Verb.ACQUIRE]
    words = (b"2", b"key", b"redlock-fast:marker", b"token", b"1500", b"run", b"60000")
    assert render(acquire, ARGS) == array(b"EVALSHA", MARKED_ACQUIRE.sha1, *words)


@cases("mark", [None, MARK])
@cases("can", EVERY_SERVER)
def test_every_script_of_a_dialect_is_loaded(can: Capabilities, mark: RestartMarker | None) -> None:
    loaded = {one.sha1 for one in scripts(dialect(can, mark))}
    rendered = b"".join(render(template, ARGS) for template in dialect(can, mark))
    used = set(re.findall(rb"EVALSHA\r\n\$40\r\n(\w{40})\r\n", rendered))
    assert used == loaded


@cases("can", EVERY_SERVER)
def test_several_keys_are_the_scripts_keys(can: Capabilities) -> None:
    plain, marked = dialect(can), dialect(can, MARK)
    keys = (b"a", b"b")
    words = (b"2", *keys, b"token", b"1500")
    acquire, release = plain[Verb.ACQUIRE_ALL], plain[Verb.RELEASE_ALL]
    assert render(acquire, ALL_ARGS) == array(b"EVALSHA", ACQUIRE_ALL.sha1, *words)
    assert render(release, ALL_ARGS) == array(b"EVALSHA", RELEASE_ALL.sha1, *words)
    assert acquire.fallback
    assert render(acquire.fallback, ALL_ARGS) == array(b"EVAL", ACQUIRE_ALL.text, *words)
    words = (b"3", *keys, b"redlock-fast:marker", b"token", b"1500", b"run", b"60000")
    assert render(marked[Verb.ACQUIRE_ALL], ALL_ARGS) == array(b"EVALSHA", MARKED_ACQUIRE_ALL.sha1, *words)
    assert marked[Verb.RELEASE_ALL] == release


# --- watching -----------------------------------------------------------------------------------------


@cases("can", EVERY_SERVER)
def test_watching_is_one_template_with_one_reply_that_counts(can: Capabilities) -> None:
    """Armed and asked in one: a change between the two would never be pushed."""
    look = array(b"PTTL", b"key")
    asked = dialect(can)[Verb.WATCH]
    assert (render(asked, ARGS), asked.leading_replies, asked.watch) == (look, 0, WATCH_KEY)
    armed = dialect(can._replace(push=True))[Verb.WATCH]
    assert render(armed, ARGS) == array(b"CLIENT", b"CACHING", b"YES") + look
    assert (armed.leading_replies, armed.watch, armed.rollback_verb) == (1, WATCH_KEY, None)


def test_a_script_that_watches_is_armed_again_where_it_is_unknown() -> None:
    template = script("key", "", b"return redis.call('pttl',key)").template(0)
    armed = watching(template, Capabilities(push=True), WATCH_PREFIX)
    assert armed.fallback is not None
    for one, word in ((armed, b"EVALSHA"), (armed.fallback, b"EVAL")):
        rendered = render(one, ARGS)
        assert rendered.startswith(array(b"CLIENT", b"CACHING", b"YES"))
        assert bulk(word) in rendered
        assert (one.leading_replies, one.watch) == (1, WATCH_PREFIX)
    assert watching(template, Capabilities()).leading_replies == 0


def test_a_template_may_begin_with_what_goes_out_as_it_is() -> None:
    armed = watching(command(~0, b"PTTL", 1), Capabilities(push=True))
    assert render(armed, (b"*2\r\n", b"key")) == array(b"CLIENT", b"CACHING", b"YES") + array(b"PTTL", b"key")
