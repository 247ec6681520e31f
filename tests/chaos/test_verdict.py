"""The judge: each kind of violation is seen where there is one, and nowhere else."""

from __future__ import annotations

import pytest
from chaos import history, truth, verdict
from chaos.history import Hold
from chaos.recorder import Chapter, Piece
from chaos.truth import Span, Truth

KEY, A, B = b"chaos", b"a" * 20, b"b" * 20


def hold(
    token: bytes, granted: float, deadline: float, released_at: float = float("inf"), **more: object
) -> Hold:
    made = Hold("worker", token, granted, [(granted, deadline)], released_at)
    for name, value in more.items():
        setattr(made, name, value)
    return made


def test_clocks_are_read_again_if_the_thread_was_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "clock", iter([1.0, 1.0 + history.READING, 2.0, 2.0]).__next__)
    assert history.both_clocks()[0] == 2.0


def test_an_overlap_is_a_grant_before_the_end_of_another_hold() -> None:
    first = hold(A, 0.0, 1.0)
    assert len(verdict.overlaps([first, hold(B, 0.9, 1.9)])) == 1
    assert verdict.overlaps([first, hold(B, 1.0, 2.0)]) == []
    assert verdict.overlaps([hold(A, 0.0, 1.0, released_at=0.5), hold(B, 0.6, 1.6)]) == []
    assert verdict.overlaps([first, hold(B, 0.5, 0.5)]) == [], "over before it was known of"
    assert len(verdict.overlaps([first, hold(B, 0.1, 0.2), hold(b"c", 0.3, 0.4)])) == 2


def masters(*untils: float) -> list[Truth]:
    return [Truth(spans=[Span(A, 0.0, until)]) for until in untils]


def test_a_deadline_may_not_be_later_than_the_end_of_a_majority_of_keys() -> None:
    mine = hold(A, 0.0, 1.0)
    assert verdict.uncovered([mine], masters(1.1, 1.1, 1.1, 0.2, 0.2), need=3) == []
    assert verdict.uncovered([mine], masters(1.1, 1.1, 0.9, 0.2, 0.2), need=3) == [(mine, 0.9)]
    assert verdict.uncovered([mine], masters(1.1, 1.1), need=3) == [(mine, 0.0)]
    assert verdict.uncovered([hold(A, 0.0, 1.0, released_at=0.5)], masters(1.1, 1.1, 0.9), need=3) == []


def test_a_deadline_is_held_against_the_keys_of_when_it_was_stated() -> None:
    mine = hold(A, 0.5, 1.0, released_at=0.6)
    assert verdict.overstated([mine], masters(1.0, 1.0, 1.0), need=3) == []
    assert verdict.overstated([mine], masters(1.5, 1.5, 0.75), need=3) == [(mine, 0.25)]
    extended = masters(1.5, 1.5, 0.75)
    extended[2].spans[0].extend(0.55, 1.75)
    assert verdict.overstated([mine], extended, need=3) == [(mine, 0.25)], "extended later than stated"
    mine.deadlines = [(0.6, 1.0)]
    assert verdict.overstated([mine], extended, need=3) == []


def test_an_extension_is_judged_from_when_it_was_stated() -> None:
    mine = hold(A, 0.0, 1.0)
    mine.deadlines.append((0.5, 1.5))
    assert verdict.uncovered([mine], masters(1.6, 1.6, 1.6), need=3) == []
    assert verdict.uncovered([mine], masters(1.6, 1.6, 1.1), need=3) == [(mine, 1.1)]


def test_no_vote_is_taken_back_while_the_lock_is_held() -> None:
    mine, truths = hold(A, 0.0, 1.0, released_at=0.5), masters(1.1, 1.1, 1.1)
    span = truths[1].spans[0]
    span.end, span.why = 0.6, "deleted"
    assert verdict.retracted([mine], truths) == [], "released"
    span.end = 0.4
    assert verdict.retracted([mine], truths) == [(mine, 1, 0.4, "deleted")]
    span.why = "forgotten"
    assert verdict.retracted([mine], truths) == []


def test_no_vote_is_shortened() -> None:
    mine, truths = hold(A, 0.0, 1.0), masters(1.1, 1.1, 1.1)
    span = truths[2].spans[0]
    span.extend(0.2, 1.3)
    assert verdict.retracted([mine], truths) == []
    span.extend(0.3, 1.2)
    [(_, master, moment, how)] = verdict.retracted([mine], truths)
    assert (master, moment, how) == (2, 0.3, "shortened by 0.1000 s")


def test_lost_updates() -> None:
    holds = [hold(A, 0.0, 1.0, wrote=0.5), hold(B, 0.2, 1.2, wrote=0.6)]
    assert verdict.lost_updates(holds, counted=2) == 0
    assert verdict.lost_updates(holds, counted=1) == 1
    holds[0].wrote = 1.1
    assert verdict.lost_updates(holds, counted=1) == 0, "written after the lease, and known"
    holds[0].fence = 7
    assert verdict.lost_updates(holds, counted=1) == 1, "a fenced counter refuses, or keeps"
    holds[0].accepted = False
    assert verdict.lost_updates(holds, counted=1) == 0


def test_fencing_tokens_must_increase() -> None:
    first, second = hold(A, 0.0, 1.0, fence=7), hold(B, 2.0, 3.0, fence=8)
    assert verdict.disorders([first, second]) == []
    second.fence = 7
    assert verdict.disorders([second, first]) == [(first, second)]


# --- the truth -----------------------------------------------------------------------------------


def event(name: str) -> bytes:
    return (
        b">4\r\n$8\r\npmessage\r\n$16\r\n__keyevent@0__:*\r\n$18\r\n__keyevent@0__:%b\r\n$5\r\nchaos\r\n"
        % name.encode()
    )


def monitored(at: float, *words: bytes, by: bytes = b"127.0.0.1:1") -> bytes:
    return b"+%.6f [0 %b] %b\r\n" % (at, by, b" ".join(b'"%b"' % word for word in words))


def chapter_of(
    *lines: bytes, found: dict[bytes, tuple[bytes, float]] | None = None, began: float = 0.0
) -> Chapter:
    """All received at one time, in pieces of any size; the wall clock is our clock."""
    stream = b"".join(lines)
    return Chapter(
        began, began, found or {}, [Piece(50.0, 50.0, stream[n : n + 7]) for n in range(0, len(stream), 7)]
    )


def set_(at: float, token: bytes) -> bytes:
    return event("set") + event("expire") + monitored(at, b"SET", KEY, token, b"NX", b"PX", b"1000")


def test_a_key_lives_from_its_set_to_its_delete() -> None:
    refused = monitored(1.5, b"SET", KEY, B, b"NX", b"PX", b"1000")
    deleted = event("del") + monitored(1.75, b"DELIFEQ", KEY, A)
    [span] = truth.read([chapter_of(set_(1.0, A), refused, deleted)], KEY, True).spans
    assert (span.token, span.start, span.expiry, span.until, span.why) == (A, 1.0, 2.0, 1.75, "deleted")


def test_scripts_say_what_they_do_line_by_line() -> None:
    extended = (
        monitored(1.25, b"EVALSHA", b"sha", b"1", KEY, A, b"1000")
        + event("expire")
        + monitored(1.5, b"pexpire", KEY, b"1000", by=b"lua")
    )
    deleted = (
        monitored(1.625, b"EVALSHA", b"sha", b"1", KEY, A)
        + event("del")
        + monitored(1.75, b"del", KEY, by=b"lua")
    )
    read = truth.read([chapter_of(set_(1.0, A), extended, deleted)], KEY, True)
    assert [(span.expiry, span.until) for span in read.spans] == [(2.5, 1.75)]
    assert read.foreign == []


def test_a_foreign_delete_is_seen() -> None:
    deleted = event("del") + monitored(1.75, b"DELIFEQ", KEY, B)
    assert truth.read([chapter_of(set_(1.0, A), deleted)], KEY, True).foreign == [(A, B)]
    by_another_command = event("del") + monitored(1.75, b"DEL", KEY)
    assert truth.read([chapter_of(set_(1.0, A), by_another_command)], KEY, True).foreign == [(A, KEY)]


def test_a_set_after_its_release_is_seen() -> None:
    assert (
        truth.read([chapter_of(monitored(0.9, b"DELIFEQ", KEY, A), set_(1.0, A))], KEY, True).late_sets == 1
    )


def test_a_restart_keeps_a_key_or_forgets_it() -> None:
    before = chapter_of(set_(1.0, A))
    before.ended = 1.25
    kept = truth.read([before, chapter_of(found={KEY: (A, 2.0)}, began=1.5)], KEY, True).spans
    assert [(span.until, span.why) for span in kept] == [(2.0, "")]
    forgotten = truth.read([before, chapter_of(began=1.5)], KEY, True).spans
    assert [(span.until, span.why) for span in forgotten] == [(1.25, "forgotten")]
    expired = truth.read([before, chapter_of(began=2.5)], KEY, True).spans
    assert [(span.until, span.why) for span in expired] == [(2.0, "expired")]
    recheck = truth.read([before, chapter_of(found={KEY: (B, 3.0)}, began=2.5)], KEY, True).spans
    assert [(span.token, span.start, span.until) for span in recheck] == [(A, 1.0, 2.0), (B, 1.0, 3.0)]


@pytest.mark.parametrize(
    ("history", "allowed"),
    [
        ([set_(1.0, A), event("del") + monitored(1.5, b"DELIFEQ", KEY, A), set_(1.6, B)], True),
        ([set_(1.0, A), set_(2.1, B)], True),
        ([set_(1.0, A), set_(1.5, B)], False),
        ([monitored(1.0, b"SET", KEY, A, b"NX", b"PX", b"1000")], False),
        ([set_(1.0, A), event("del") + monitored(1.5, b"DELIFEQ", KEY, B)], False),
        ([set_(1.0, A), monitored(1.2, b"FLUSHALL"), set_(1.5, B)], True),
    ],
    ids=["released", "expired", "overwritten", "refused without a key", "foreign", "flushed"],
)
def test_what_a_master_executed_is_replayed_through_the_model(history: list[bytes], allowed: bool) -> None:
    true, moved = (truth.read([chapter_of(*history)], KEY, true_clock) for true_clock in (True, False))
    assert [number for number, _ in verdict.not_allowed([moved, true])] == ([] if allowed else [1])


def test_a_restart_is_replayed_with_what_was_found() -> None:
    kept = truth.read(
        [chapter_of(set_(1.0, A)), chapter_of(set_(1.6, B), found={KEY: (A, 2.0)}, began=1.5)], KEY, True
    )
    forgotten = truth.read([chapter_of(set_(1.0, A)), chapter_of(set_(1.6, B), began=1.5)], KEY, True)
    assert [number for number, _ in verdict.not_allowed([kept, forgotten])] == [0]


def test_values_are_unquoted() -> None:
    line = rb'+1.5 [0 lua] "set" "k\"\\" "\x00\xff\n"' + b"\r\n"
    [(_, words)] = truth.lines([Piece(0.0, 0.0, line)])
    assert words == (1.5, True, [b"set", b'k"\\', b"\0\xff\n"])
