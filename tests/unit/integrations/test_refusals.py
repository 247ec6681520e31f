"""The HTTP answer for an error."""

from __future__ import annotations

import logging

import pytest

from redlock_fast import Contended, FastRedlock, LockLost, MasterError, QuorumUnavailable, StaleToken
from redlock_fast.integrations.refusals import ERRORS, refusal

CAUSES = [MasterError("10.0.0.1:6379", "not connected")]


@pytest.mark.parametrize(
    ("error", "status", "seconds"),
    [
        (Contended("secret is held", resource="secret", reason="held"), 409, "3"),
        (QuorumUnavailable("no quorum for secret", CAUSES, reason="unavailable"), 503, "3"),
        (QuorumUnavailable("guarded", CAUSES, reason="guarded", retry_after=17.2), 503, "18"),
        (LockLost("secret: lost", resource="secret"), 500, None),
        (StaleToken("secret: stale"), 500, None),
    ],
)
def test_answers(error: Exception, status: int, seconds: str | None) -> None:
    assert isinstance(error, ERRORS)
    with FastRedlock(["redis://a"], ttl=2.1) as client:
        answer = refusal(error, client)
    assert (answer.status, answer.headers.get("Retry-After")) == (status, seconds)
    assert not {"secret", "10.0.0.1"} & set(answer.detail.split())


def test_without_a_client_and_without_a_fraction() -> None:
    assert refusal(Contended("held"), None).headers == {"Retry-After": "1"}
    assert refusal(Contended("held", retry_after=0.1), None).headers == {"Retry-After": "1"}


def test_a_lost_lock_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "redlock_fast"):
        try:
            raise LockLost("orders:42: lost")
        except LockLost as error:
            refusal(error, None)
    assert [vars(record)["event"] for record in caplog.records] == ["request-lost-lock"]
    assert "orders:42" in caplog.text


@pytest.mark.parametrize(
    ("error", "level"),
    [
        (Contended("held", resource="orders:42", reason="held", owner="web-2:7:MainThread"), "INFO"),
        (QuorumUnavailable("no quorum", CAUSES, resource="orders:42", reason="guarded"), "WARNING"),
    ],
)
def test_a_refusal_is_logged_with_the_lock(
    error: Contended | QuorumUnavailable, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "redlock_fast"):
        refusal(error, None)
        refusal(error, None)
    assert [(one.levelname, vars(one)["event"], vars(one)["resource"]) for one in caplog.records] == [
        (level, "request-refused", "orders:42")
    ] * 2
    assert vars(caplog.records[0])["reason"] == error.reason
    assert vars(caplog.records[0])["owner"] == getattr(error, "owner", "")
