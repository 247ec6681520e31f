"""Small wrong changes, each with the tests that must convict it.

``old`` occurs exactly once in the file (tests/unit/repository/test_mutants.py sees to it); keep it short,
and away from what changes often.
"""

from __future__ import annotations

from dataclasses import dataclass


def judges(*names: str) -> str:
    """The test files of these names: ``unit/locks/rlock`` is tests/unit/locks/test_rlock.py."""
    files = [name.rpartition("/") for name in names]
    return " ".join(f"tests/{folder}/test_{name}.py" for folder, _, name in files)


CONTRACT = judges("contract/rule_02_decision", "contract/rule_01_votes", "contract/rule_04_matching")
REPLICATED = judges("contract/rule_15_replicas")
WATCHING = judges("contract/rule_11_watch")
QUORUMS = judges("contract/rule_02_quorums")
FLUSHED = judges("contract/rule_12_not_what_it_was")
ORDER = judges("real/locks/fencing_order")


@dataclass(frozen=True)
class Mutant:
    """One change: ``old`` becomes ``new`` in ``file``.

    ``tests``: what pytest runs, one by one, until one convicts.
    ``seconds``: how long those tests may take; one that hangs is convicted, too.
    ``argued``: why it changes nothing that a test could see, where it survives.
    """

    name: str
    file: str
    old: str
    new: str
    tests: str
    seconds: float = 300.0
    argued: str = ""

    @property
    def native(self) -> bool:
        """Whether it is C, for the native engine."""
        return self.file.startswith("src/")

    @property
    def area(self) -> str:
        """The package of the file, or c."""
        return "c" if self.native else self.file.split("/")[1]


def of(file: str, tests: str, *changes: tuple[str, str, str]) -> list[Mutant]:
    """Mutants of one file that the same tests must convict: (name, old, new)."""
    return [Mutant(name, file, old, new, tests) for name, old, new in changes]


ALGORITHM = [
    *of(
        "redlock_fast/algorithm/quorum.py",
        judges("unit/algorithm/quorum", "unit/algorithm/attempts"),
        ("quorum-of-half", "return masters // 2 + 1", "return (masters + 1) // 2"),
        ("drift-without-granularity", "return ttl * factor + EXPIRY_GRANULARITY", "return ttl * factor"),
        ("deadline-without-drift", "return start + ttl - drift(ttl, factor)", "return start + ttl"),
        ("ttl-rounded-down", "return math.ceil(round(ttl * 1000, 6))", "return int(ttl * 1000)"),
        ("retry-below-a-round", "low = max(self.min_delay, round_time)", "low = self.min_delay"),
        ("pauses-of-one-value", "max(high - low, window(round_time, splits))", "max(0.0, high - low)"),
        ("retry-never-grows", "self.min_delay * 2.0 ** min(attempt, 30)", "self.min_delay * 2.0"),
        (
            "stagger-never-doubles",
            "window(round_time, splits, FIRST_WAKE)",
            "window(round_time, 0, FIRST_WAKE)",
        ),
    ),
    *of(
        "redlock_fast/algorithm/master_lists.py",
        judges("unit/algorithm/master_lists"),
        (
            "quorum-of-any-list",
            "return not self.lacking(mask)",
            "return len(self.lacking(mask)) < len(self.lists)",
        ),
        ("rest-without-the-part", "left = [(own, need", "left = [(own & ~mask, need"),
        ("rank-of-the-first-list", "return max(found, default=None)", "return found[0] if found else None"),
        ("rank-of-the-smallest", "min(need, len(of_list)) - 1 :", "0:"),
        ("rank-of-the-largest", "min(need, len(of_list)) - 1 :", "-1:"),
        (
            "impossible-too-early",
            "return votes.refused + votes.faulty > self",
            "return votes.refused + votes.faulty >= self",
        ),
        ("impossible-without-faults", "return votes.refused + votes.faulty >", "return votes.refused >"),
        ("list-counted-as-numbers", "if shards or masks == (everyone,) else 0", "if len(masks) == 1 else 0"),
        ("rest-of-one-list", "Quorums(missing) if missing", "Quorums(missing[:1]) if missing"),
    ),
    *of(
        "redlock_fast/algorithm/redlock.py",
        judges("unit/algorithm/procedures", "unit/algorithm/redlock"),
        ("granted-after-the-deadline", "if granted and validity > 0:", "if granted:"),
        ("granted-by-no-quorum", "if granted and validity > 0:", "if validity > 0:"),
        ("released-by-any", "return granted or (votes", "return True or (votes"),
        ("released-though-lost", "if lease.lost:", "if False:"),
        ("alive-after-the-deadline", "votes)) and now < lease.deadline", "votes))"),
        (
            "restarted-master-counts",
            "granted = sum([value > 0 for value in values])",
            "granted = votes.granted",
        ),
        ("distrusted-vote-counts", "FAULT if mask >> master & 1 else value", "value"),
        ("alive-though-hopeless", "or not lists.refused(votes)) and", "or True) and"),
        ("fewest-grants-are-the-weakest", "lists.granted(votes), votes.granted", "votes.granted"),
    ),
    Mutant(
        "late-extension-is-not-followed",
        "redlock_fast/algorithm/renewal_schedule.py",
        "self._push(self._dues, now + left, renewed)",
        "pass",
        judges("unit/algorithm/renewal_schedule"),
    ),
    *of(
        "redlock_fast/algorithm/renewal_schedule.py",
        judges("unit/algorithm/renewal_schedule"),
        ("drift-ends-renewal", "elif ttl < renewed.ttl and self._gain", "elif self._gain"),
        ("drift-makes-it-due-at-once", "renewed.early = min(renewed.early, rest * EX", "(rest * EX"),
    ),
    Mutant(
        "the-strongest-part-decides",
        "redlock_fast/algorithm/redlock.py",
        "return min(answers, key=",
        "return max(answers, key=",
        judges("unit/locks/multilock", "real/locks/multilock"),
    ),
    Mutant(
        "batch-granted-too-late",
        "redlock_fast/algorithm/redlock.py",
        "need = lists.counted if why is None else lists.masters + 1",
        "need = lists.counted",
        judges("unit/algorithm/batch"),
    ),
    *of(
        "redlock_fast/masters/faults.py",
        judges("unit/masters/faults"),
        ("left-out-is-found", "elif detail != NOT_ASKED", "if detail != NOT_ASKED"),
        ("not-asked-is-found", "elif detail != NOT_ASKED and not _is_text(detail)", "else"),
    ),
    *of(
        "redlock_fast/algorithm/lease.py",
        judges("unit/algorithm/batch", "unit/algorithm/procedures", "unit/algorithm/renewal_schedule"),
        ("lost-keeps-its-deadline", "self.deadline = min(self.deadline, now)", "pass"),
        ("batch-granted-by-a-minority", "if yes >= need else None", "if yes > 0 else None"),
    ),
    *of(
        "redlock_fast/algorithm/fencing.py",
        judges("unit/algorithm/fencing"),
        ("a-larger-counter-vouches", "if value == number)", "if value >= number)"),
        ("a-minority-agrees", "if least and lists.is_quorum(there)", "if least"),
        ("vouched-for-without-asking", "missing = lists.without(vouching)", "missing = 0"),
        ("raised-counters-not-counted", "counters[master] = number", "pass"),
        ("lagging-counters-not-raised", "if value < number)", "if value < 0)"),
        ("silent-masters-not-raised", "behind |= silent &", "0 &"),
        ("distrusted-masters-raised", "mask_of(counters) & ~distrusted(attempt)", "mask_of(counters)"),
        ("counters-of-refusals-not-ranked", "counters[master] = -value", "pass"),
        ("token-is-not-above-the-rank", "if number >= least and", "if"),
        ("a-fault-ends-the-round", "Wait.CERTAIN", "Wait.EARLY"),
    ),
    *of(
        "redlock_fast/algorithm/operations.py",
        judges("unit/algorithm/procedures"),
        ("earlier-rounds-forgotten", "self.sent = self._sent_before | votes.sent", "self.sent = votes.sent"),
        (
            "round-beyond-the-time",
            "timeout = max(0.0, min(timeout, self.give_up_at - self.start))",
            "pass",
        ),
    ),
    *of(
        "redlock_fast/algorithm/operations.py",
        judges("unit/algorithm/attempts"),
        (
            "interrupted-caller-does-not-leave",
            "            self._retry_loop.leave(granted=False)\n",
            "            pass\n",
        ),
    ),
    *of(
        "redlock_fast/algorithm/operations.py",
        judges("real/threads/operations"),
        ("grants-without-their-number", "fencing = agreed_number(self.lists, votes)", "fencing = 0"),
    ),
    *of(
        "redlock_fast/algorithm/operations.py",
        judges("real/threads/operations", "real/aio/driver"),
        ("the-first-exchange-is-extra-time", "self.give_up_at = self.start + self.seconds", "pass"),
    ),
    *of(
        "redlock_fast/algorithm/procedures.py",
        judges("unit/algorithm/procedures"),
        (
            "extended-though-lost-before",
            "if start >= lease.deadline or lease.lost:",
            "if start >= lease.deadline:",
        ),
        ("extended-after-the-deadline", "if now >= lease.deadline or refused:", "if refused:"),
        ("extended-by-a-minority", "if not granted:", "if False:"),
        (
            "extension-counts-from-its-end",
            "max(lease.deadline, deadline(start, ttl, policy.drift_factor))",
            "max(lease.deadline, deadline(now, ttl, policy.drift_factor))",
        ),
        (
            "deadline-goes-back",
            "max(lease.deadline, deadline(start, ttl, policy.drift_factor))",
            "deadline(start, ttl, policy.drift_factor)",
        ),
        ("extended-though-lost-meanwhile", "if lease.lost:  # found by", "if False:  # found by"),
        (
            "extension-outlives-the-lease",
            "timeout = min(policy.node_timeout, lease.deadline - start)",
            "timeout = 9.0",
        ),
    ),
    *of(
        "redlock_fast/algorithm/attempts.py",
        judges("unit/algorithm/attempts", "unit/algorithm/procedures"),
        (
            "token-kept-over-rounds",
            "if acquire.lock_kind.new_token_per_round or not acquire.lock_kind.keeps_place:",
            "if acquire.lock_kind.new_token_per_round and acquire.lock_kind.keeps_place:",
        ),
        ("nothing-is-undone", "        if self.acquire.sent:\n", "        if not self.acquire.sent:\n"),
        ("a-pause-is-an-outage", "now - min(self.took, policy.node_timeout)", "start"),
        ("one-round-too-many", "self.failed >= self.acquire.rounds", "self.failed > self.acquire.rounds"),
        ("rounds-beyond-the-time", "return self.spare <= 0", "return False"),
        (
            "masters-down-pass-for-contention",
            "if lists.failed(votes) or not lists.hopeless(votes):",
            "if not lists.hopeless(votes):",
        ),
        (
            "refused-by-a-minority-passes-for-contention",
            "return bool(lists.unanswered(votes)) and not lists.refused(votes)",
            "return False",
        ),
        ("no-outage_timeout", "and now - self.outage > policy.outage_timeout", ""),
        ("an-outage-for-one-after-the-other", "if too_long and self.entry is not None:", "if False:"),
        ("outages-add-up", "            self.outage = None\n", "            pass\n"),
        ("never-looks-anyhow", "if self.policy.voters.all_push:", "if True:"),
        ("last-round-begins-too-late", "min(policy.node_timeout, max(4 * self.took, left / 10))", "0.0"),
        ("any-of-the-local_queue-goes", "        return entry.is_first", "        return True"),
        ("slow-masters-pass-for-contention", "if waited and bad and cut_short:", "if bad and cut_short:"),
        ("entry-in-the-local_queue-kept", "            self.entry.leave()", "            pass"),
        ("shared-grant-admits-none", "if granted and self.acquire.lock_kind.shared:", "if False:"),
        ("never-queued-again", "self.entry is None or self.entry.slot.admitted", "self.entry is None"),
        ("admitted-caller-watches", "if self.entry is not None and self.entry.slot.admitted:", "if False:"),
    ),
    *of(
        "redlock_fast/algorithm/attempts.py",
        judges("real/threads/clean_up") + "::test_interrupted_after_a_minority_granted",
        (
            "rolled-back-before-it-is-sent",
            "            yield self.acquire.send(requests)\n",
            "            self.acquire.sent = 0\n            yield self.acquire.send(requests)\n",
        ),
        (
            "undone-before-it-is-sent",
            "            yield self.acquire.send(self.acquire.undo())\n",
            "            requests, self.acquire.sent = self.acquire.undo(), 0\n"
            "            yield self.acquire.send(requests)\n",
        ),
    ),
    Mutant(
        "interrupted-batch-not-undone",
        "redlock_fast/locks/many.py",
        "batches.undo_leases(leases) + self.batch.undo(self.batch.decided)",
        "batches.undo_leases(leases)",
        judges("real/threads/clean_up") + "::test_a_batch_interrupted_after_a_minority_granted",
    ),
    *of(
        "redlock_fast/algorithm/refill.py",
        judges("unit/algorithm/refill"),
        ("put-masters-not-released", "lease.sent |= mask  # before", "pass  # before"),
        ("put-without-votes", "lists.to_put(lease.sent, now) & voting", "lists.to_put(lease.sent, now)"),
        ("refilled-masters-not-released", "lease.sent |= mask  # first", "pass  # first"),
        ("refill-of-faulty-masters", "if value == 0 or (recheck", "if value <= 0 or (recheck"),
        ("refill-only-where-asked", "mask = lists.all & ~lease.sent", "mask = 0"),
        ("refill-of-a-released-lock", "if lease.released:", "if False:"),
        ("recheck-never-refilled", "recheck = lease.extensions % RECHECK_EVERY == 0", "recheck = False"),
        (
            "refill-always-everywhere",
            "if not all_granted and (all_replied",
            "if not all_granted or (all_replied",
        ),
    ),
    *of(
        "redlock_fast/algorithm/batch.py",
        judges("unit/algorithm/batch", "unit/algorithm/refill", "real/locks/many", "real/locks/many_faults"),
        ("batch-of-any-size", "if at - start == MOST or", "if"),
        ("refill-without-confirmation", "if not good or not lease.refillable:", "if not lease.refillable:"),
        ("parts-shift", "at += lease.lock_kind.request_count", "at += 1"),
        (
            "refused-of-a-batch-not-undone",
            "failed = [number for number, lease in enumerate(leases) if lease is None]",
            "failed: list[int] = []",
        ),
        ("slow-master-makes-it-late", "(min(lease.deadline for lease in asking) - start) / 2", "longest"),
    ),
]

GUARD = [
    *of(
        "redlock_fast/masters/masters.py",
        judges("unit/masters/masters", "real/masters/at_exit"),
        ("late-grants-stay-at-exit", "while threads and ending and time", "while False and time"),
        ("idle-client-stays-open-at-exit", "(threads and self.release_at_exit)", "False"),
        ("released-twice-at-exit", "        released.update(leases)\n", ""),
        ("cancelled-calls-are-reported-at-exit", "        _report_no_cancelled_calls()\n", "        pass\n"),
    ),
    *of(
        "redlock_fast/masters/masters.py",
        judges("real/locks/many_closed"),
        ("batches-of-a-closed-client-stay", "self._cancel_batches(timeout / 2)", "pass"),
        ("parts-behind-their-release-stay", "self._send(batch.undo(-1))", "pass"),
    ),
    *of(
        "redlock_fast/algorithm/batch.py",
        judges("unit/algorithm/batch", "real/locks/many_closed"),
        ("completed-and-cancelled", "return not self._completed[0]", "return True"),
        (
            "handler-runs-after-the-completion",
            "self._completed += [True]",
            "self._completed.append(True)",
        ),
    ),
    *of(
        "redlock_fast/algorithm/fencing.py",
        judges("unit/algorithm/fencing"),
        (
            "fenced-grant-of-a-closed-client",
            "        entries.begin_round(attempt)  # raises",
            "        # raises",
        ),
        (
            "fenced-grant-unknown-to-close",
            "lock_kind.release_requests(attempt.token, attempt.masters, attempt.ttl))",
            "[])",
        ),
    ),
    *of(
        "redlock_fast/masters/list_check.py",
        judges("unit/masters/list_check"),
        ("votes-before-all-were-tried", "tried = all(view.tried for view in views.values())", "tried = True"),
        ("conflict-not-seen", "        if self._conflict(own):", "        if False:"),
        ("strict-is-auto", "undecided = self.strict or", "undecided ="),
        ("votes-before-all-are-written", " or first is not None", ""),
        (
            "an-id-is-where-its-claimant-says",
            "for record in records.values())",
            "for record in [records[claimants[-1]]])",
        ),
        ("an-id-is-of-its-first-claimant", "(given[views[n].name], records[n].in_force)", "0"),
        ("a-claim-is-as-good-as-a-record-in-force", ", records[n].in_force), reverse", ",), reverse"),
        (
            "a-displaced-record-is-in-force",
            "if one[0] in confirmed or _is_in_force(views, one[1])]",
            "if True]",
        ),
        (
            "the-record-of-a-minority-is-the-next",
            "next((place for place, at in enumerate(confirmed) if at > since), 0)",
            "0",
        ),
        ("votes-when-no-list-can-be-written", "len(self.lists) == 1 and bool(_shared_id(views))", "False"),
        (
            "an-id-that-is-not-kept-is-another-list",
            "view.id if view.awaited or view.epoch",
            "view.id if True",
        ),
    ),
    *of(
        "redlock_fast/masters/record_writes.py",
        judges("unit/masters/list_check"),
        ("in-force-without-all", "if all(view.epoch for view in views.values()) and reached", "if reached"),
        ("later-epoch-of-one", "return all((same & mask)", "return any(1 or (same & mask)"),
        ("no-order-of-masters", "id, n = min(missing)", "id, n = missing[-1]"),
        ("votes-wait-for-a-failed-write", " and view.awaited is awaited", ""),
        ("addresses-of-any-record", "(given[address], address == own)", "0"),
        ("addresses-that-the-client-did-not-reach", "(given[address], address == own)", "given[address]"),
        ("the-mark-copies-addresses", "if own and own.terms == record.terms else record", "if 0 else record"),
        ("a-proposal-keeps-wrong-addresses", "names.get(id, one)", "one"),
    ),
    *of(
        "redlock_fast/masters/client_lists.py",
        judges("unit/masters/list_check"),
        ("votes-of-strangers", "return all(id in ids for ids, mask", "return any(id in ids for ids, mask"),
        ("max-ttl-not-compared", "record.steps if record.max_ttl == self.max_ttl else ()", "record.steps"),
    ),
    Mutant(
        "a-failed-write-is-always-the-next",
        "redlock_fast/masters/list_check.py",
        " and views[one[0]].writable",
        "",
        judges("unit/masters/records"),
    ),
    *of(
        "redlock_fast/masters/records.py",
        judges("unit/masters/records"),
        ("votes-without-a-comparison", '(f"the records cannot be compared: {failure!r}",)', '("",)'),
        ("votes-wait-for-any-reply", "awaited=master.record.tries < MAX_WRITES", "awaited=True"),
        (
            "a-failed-write-holds-up-votes-again",
            "master.record.tries, master.record.error = MAX_WRITES, why",
            "master.record.error = why",
        ),
        (
            "a-reconnect-hides-a-failed-write",
            "            else:\n                master.record.tries += 1\n",
            "",
        ),
        ("writes-are-counted-for-ever", "self._masters if verdict.ruled else ()", "()"),
        ("blocked-and-never-read-again", "read_again = verdict.blocked and self._news", "read_again = False"),
        ("blocked-and-read-for-ever", "self._news = False\n", "self._news = True\n"),
        ("a-confirmation-lasts-for-ever", "boot_time() - _confirmed_for(check)", "0.0"),
        ("stale-record-is-a-lost-one", "why in PASSING and self._is_fresh and not error", "False"),
        ("blocked-and-never-decided", "if verdict.blocked:  #", "if False:  #"),
        (
            "lost-record-is-a-vote",
            "record.no_vote = None if not why else",
            "record.no_vote = None if not why or awaited else",
        ),
    ),
    *of(
        "redlock_fast/masters/connections.py",
        judges("unit/masters/connector"),
        ("detached-and-still-usable", "with self.monitor.mutex:  # a broken", "if True:  # a broken"),
    ),
    *of(
        "redlock_fast/masters/membership.py",
        judges("unit/masters/membership", "real/masters/records"),
        ("record-overwritten", "if now~=ARGV[1] then return now end", ""),
    ),
    *of(
        "redlock_fast/masters/master.py",
        judges("unit/masters/records"),
        (
            "unlisted-master-votes",
            "if self.guard.until else self.record.no_vote",
            "if self.guard.until else None",
        ),
    ),
    *of(
        "redlock_fast/algorithm/policy.py",
        judges("unit/algorithm/procedures"),
        ("unlisted-meanwhile-extends", " or masters & lists.unlisted)", ")"),
    ),
    *of(
        "redlock_fast/algorithm/master_lists.py",
        judges("unit/algorithm/procedures"),
        ("unlisted-master-extends", "self.all & ~self.unlisted", "self.all"),
    ),
    *of(
        "redlock_fast/masters/electorate.py",
        judges("real/masters/change_stopped_client"),
        ("unlisted-masters-are-not-noted", "voters.lists.unlisted = self._unlisted()", "pass"),
    ),
    *of(
        "redlock_fast/masters/roster.py",
        judges("real/masters/records"),
        (
            "a-quorum-without-votes-is-connected",
            "one.link.attached and not one.record.no_vote)",
            "one.link.attached)",
        ),
    ),
    Mutant(
        "a-later-connection-votes-for-former-lists",
        "redlock_fast/masters/dialler.py",
        "self._roster.former.forbid(number)\n",
        "pass\n",
        judges("real/masters/change_held_up"),
    ),
    Mutant(
        "a-reused-number-is-a-first-contact",
        "redlock_fast/masters/former_lists.py",
        "[*self._left.values(), *(master",
        "[*(master",
        judges("real/masters/change"),
    ),
    Mutant(
        "a-lag-of-0-stops-a-master",
        "redlock_fast/masters/dialler.py",
        "and not (server.min_replicas and server.max_lag)",
        "and not server.min_replicas",
        judges("unit/masters/connector"),
    ),
    Mutant(
        "an-alias-in-another-database",
        "redlock_fast/masters/connect.py",
        "if database != self._database:",
        "if False:",
        judges("unit/masters/connect", "real/masters/restart_guard"),
    ),
    Mutant(
        "an-isolated-master-stops-in-time",
        "redlock_fast/masters/restart_guard.py",
        "return max_lag + LATE_STOP if max_lag",
        "return max_lag if max_lag",
        judges("real/masters/partition"),
    ),
    *of(
        "redlock_fast/masters/restart_guard.py",
        judges("unit/masters/restart_guard", "real/masters/partition"),
        (
            "an-empty-replica-was-not-promoted",
            "(self.max_ttl + stops_after(server.lag)) * 1000",
            "(self.max_ttl + stops_after(server.lag) * server.promoted) * 1000",
        ),
    ),
    Mutant(
        "the-command-forgets-the-isolated-master",
        "redlock_fast/cli/masters/phases.py",
        "GRANULARITY + late",
        "GRANULARITY",
        judges("real/cli/masters/partition"),
    ),
    *of(
        "redlock_fast/algorithm/local_queue.py",
        judges("unit/algorithm/attempts"),
        ("interrupted-caller-wakes-none", "not present or entries[0]", "entries[0]"),
        (
            "admitted-before-they-are-woken",
            "            for slot in entries:\n                slot.admitted = True\n",
            "            del self.waiting[entry.key]\n"
            "            for slot in entries:\n                slot.admitted = True\n",
        ),
    ),
    *of(
        "redlock_fast/algorithm/procedures.py",
        judges("real/masters/change_stopped_client"),
        ("unlisted-master-downgrades", "lease.sent & lists.extending()", "lease.sent"),
    ),
    *of(
        "redlock_fast/masters/restart_guard.py",
        judges("unit/masters/restart_guard"),
        ("uptime-beyond-the-absence", "min(age, away)", "age"),
        ("uptime-to-the-second", "max(0.0, uptime - 1)", "uptime"),
        ("quarantine-beyond-the-ttl", "return max(0.0, uptime - 1)", "return uptime - 1"),
        ("an-attempt-in-vain-is-forgotten", "age >= away", "age >= 0"),
        ("promoted-is-known", "        if promoted", "        if False and promoted"),
        ("flush-does-not-quarantine", "        if flushed:", "        if False:"),
        ("a-marker-in-a-dump-is-believed", 'if reloaded and self.mode != "off"', "if reloaded and False"),
    ),
    *of(
        "redlock_fast/masters/restart_guard.py",
        judges("unit/masters/restart_guard"),
        (
            "durable-now-was-not-before",
            "server.durable and before.durable and",
            "server.durable and",
        ),
        ("marker-not-obeyed", "quarantine = max(quarantine, server.guarded)", "pass"),
        ("unreported-flushes-are-not-counted", "(self.flushed or unreported)", "self.flushed"),
        ("counted-flush-of-another-database", "unreported) and not kept", "unreported)"),
        ("a-dump-is-a-flush-of-another-database", "reloaded=reloaded", "reloaded=False"),
        ("forked-without-guard", "return replace(self)\n", "return replace(self, until=0.0)\n"),
        (
            "guard-gets-shorter",
            "self.until = max(self.until, now + quarantine)",
            "self.until = now + quarantine",
        ),
    ),
    Mutant(
        "a-cured-master-has-failed-writes",
        "redlock_fast/masters/known_record.py",
        'self.error, self.writes = "", 0',
        'self.error, self.writes = "", 99',
        judges("unit/masters/records"),
    ),
    Mutant(
        "a-child-keeps-its-parents-client",
        "redlock_fast/masters/client_state.py",
        "        self._reset()\n        clients_with_leases.pop(self, None)\n",
        "        self._reset()\n",
        judges("unit/masters/client_state"),
    ),
]

KINDS = [
    *of(
        "redlock_fast/locks/leader.py",
        judges("unit/locks/leader", "real/locks/leader"),
        (
            "leader-without-notice",
            "self.lock.remaining() - self._notice",
            "self.lock.remaining()",
        ),
        ("leader-of-a-closed-client", "lease.released or self._core.client_state.closed", "lease.released"),
        (
            "leader-leads-again-in-one-term",
            "self.over = True\n        return not self.over",
            "return self.left() > 0.0\n        return not self.over",
        ),
    ),
    *of(
        "redlock_fast/threads/leader.py",
        judges("real/threads/leader", "real/locks/leader"),
        ("next-term-beside-the-work", "term.work.join()  #", "pass  #"),
        ("campaign-at-exit", "atexit.register(stop_campaigns)", ""),
        ("campaign-without-its-thread", "campaign.stopping = True\n                    raise", "raise"),
        ("campaign-beside-the-last-but-one", "before.after if before.thread.ident is None else ", ""),
        ("stop-without-news-of-the-last-term", "if before is None else before._changed", ""),
        ("stop-in-on_lost-waits-for-on_lost", "(term.work, term.reporter) if", "(term.work,) if"),
    ),
    *of(
        "redlock_fast/aio/leader.py",
        judges("real/aio/leader"),
        (
            "cancelled-on_lost-ends-the-campaign",
            "except (Exception, asyncio.CancelledError) as",
            "except Exception as",
        ),
        (
            "request-that-a-task-group-left",
            "task.uncancel()\n        return good",
            "break\n        return good",
        ),
        ("stop-cancels-the-last-work", "        if campaign.acquiring:", "        if self._term.released:"),
        ("term-of-a-parent-is-reported", "term = None  # the parent's", "pass  # the parent's"),
        (
            "another-loop-than-the-campaigns",
            "if campaign.loop is not asyncio.get_running_loop():",
            "if False:",
        ),
        (
            "closed-generator-campaigns-on",
            "campaign.loop.call_soon_threadsafe(self._begin_stop, campaign)",
            "pass",
        ),
    ),
    Mutant(
        "level-left-in-a-wrong-loop",
        "redlock_fast/aio/rlock.py",
        "core.loop_binding()  # raises",
        "pass  #",
        judges("real/aio/rlock"),
    ),
    Mutant(
        "loss-of-a-body-that-holds-again",
        "redlock_fast/locks/lock_state.py",
        "body is not None and body.lease is not None and body.lease.lost",
        "False",
        judges("real/aio/renewal", "real/threads/renewal"),
    ),
    Mutant(
        "a-release-stops-the-renewal-of-a-later-lease",
        "redlock_fast/locks/auto_extend.py",
        "renewed is not None and renewed.lease is lease:\n            self._renewal.drop",
        "renewed is not None:\n            self._renewal.drop",
        judges("real/threads/renewal"),
    ),
    Mutant(
        "a-loss-sets-the-event-of-a-later-lease",
        "redlock_fast/locks/auto_extend.py",
        "if self._renewed is renewed:",
        "if True:",
        judges("real/threads/renewal"),
    ),
    Mutant(
        "loss-of-a-lease-that-was-released-first",
        "redlock_fast/locks/auto_extend.py",
        "if renewed.lease.released and not released:",
        "if False:",
        judges("real/threads/renewal"),
    ),
    *of(
        "redlock_fast/threads/lock.py",
        judges("real/threads/operations"),
        (
            "interrupt-releases-for-another-thread",
            "if body.lease is not None:\n            release(",
            "if True:\n            release(",
        ),
        ("interrupted-with-leaves-its-body", "remove_bodies_of(self._bodies or [], body.lease)", "pass"),
        (
            "end-of-with-releases-what-another-began",
            "alive = lease is not None and release(self, self._core.masters, lease)",
            "alive = lease is not None and release(self, self._core.masters)",
        ),
        (
            "interrupted-end-releases-for-another-body",
            "not self._in_another_body(lease, threading",
            "lease is (threading",
        ),
        ("interrupted-end-leaves-its-body", "remove_bodies_of(self._bodies or [], lease)", "pass"),
    ),
    *of(
        "redlock_fast/threads/client.py",
        judges("real/threads/operations"),
        (
            "interrupted-batch-releases-for-another-thread",
            "            held = leases_of(self._core, locks)\n",
            "",
        ),
    ),
    *of(
        "redlock_fast/locks/lock_state.py",
        judges("real/threads/operations"),
        (
            "body-begins-after-its-lease-is-seen",
            "        if body is not None:\n            self._give_lease(body, lease)\n        lease.at_exit",
            "        lease.at_exit",
        ),
    ),
    Mutant(
        "interrupted-batch-of-groups-releases-for-another-thread",
        "redlock_fast/sharded/clients.py",
        "            if leases is not None:  #",
        "            if False:  #",
        "tests/real/sharded/test_clients.py::test_an_interrupted_release_of_many_keeps_the_lease_of_another_thread",
    ),
    *of(
        "redlock_fast/locks/operations.py",
        judges("real/threads/operations", "real/locks/handover"),
        ("a-lease-that-ended-meanwhile-is-no-loss", "lock._note_loss(ended)", "pass"),
        (
            "an-interrupted-token-release-is-not-undone",
            "            self.of_token = True\n",
            "            pass\n",
        ),
        (
            "an-interrupted-take-over-is-not-renewed",
            "self.lock._undo_take_over(self.handover, self.lease)",
            "pass",
        ),
        ("a-released-token-is-taken-over", "        if self.handover.released:\n", "        if False:\n"),
        (
            "interrupted-release-takes-a-later-lease",
            "lock._start_release(self.lease) if self.lease is not None else None",
            "lock._start_release()",
        ),
    ),
    *of(
        "redlock_fast/algorithm/operation.py",
        judges("unit/threads/operations"),
        ("a-stop-iteration-ends-a-procedure", "if self._steps.gi_frame is not None:", "if False:"),
    ),
    *of(
        "redlock_fast/aio/loop.py",
        judges("unit/aio/loop"),
        ("a-shorter-exchange-moves-the-timer", "and self.loop.time() + seconds < self._timer.when()", ""),
        ("a-stall-outlasts-the-timeout", "min(stall, timeout) if stall", "stall if stall"),
    ),
    *of(
        "redlock_fast/aio/rlock.py",
        judges("real/aio/rlock"),
        (
            "a-loss-cancels-the-first-task-only",
            "            ownership.lock._begin_outermost_body(task)\n",
            "",
        ),
        ("a-body-of-another-task-stays", "if entered is own)", "if False)"),
    ),
    *of(
        "redlock_fast/aio/leader.py",
        judges("real/aio/leader"),
        ("the-work-of-a-closed-loop-is-awaited", "before.work = None", "pass"),
    ),
    *of(
        "redlock_fast/engine/condition.py",
        judges("unit/engine/condition"),
        ("the-error-of-a-handler-is-replaced", " or NOT_OWNED not in str(error)", ""),
    ),
    *of(
        "redlock_fast/locks/bodies.py",
        judges("unit/locks/bodies", "real/threads/operations", "real/aio/driver", "real/aio/renewal"),
        ("end-of-a-body-releases-the-lease-of-another", "if body.lease is lease and", "if False and"),
        ("the-body-of-a-destroyed-task-ends-another", "one() is None:", "False:"),
        ("a-loss-cancels-the-body-of-a-later-lease", "if body.lease is lost]", "if False]"),
    ),
    Mutant(
        "interrupted-batch-stays-held",
        "redlock_fast/threads/client.py",
        "            run(ReleaseMany(self._core, locks, left), self._core.masters)\n            raise",
        "            raise",
        "tests/real/threads/test_operations.py::test_a_batch_that_is_interrupted_is_released",
    ),
    Mutant(
        "interrupted-batch-of-groups-stays-held",
        "redlock_fast/sharded/clients.py",
        "            self._release_parts(locks, self._partition_locks(locks))",
        "            pass",
        "tests/real/sharded/test_clients.py::test_a_handler_that_raises_in_release_many",
    ),
    Mutant(
        "groups-of-a-closed-client-are-returned",
        "redlock_fast/sharded/clients.py",
        "completion.complete()\n            return locks\n        except BaseException:\n",
        "return locks\n        except BaseException:\n",
        "tests/real/sharded/test_clients.py::test_a_call_is_undone_in_all_groups_if_one_of_them_was_closed",
    ),
    *of(
        "redlock_fast/threads/leader.py",
        "tests/real/threads/test_leader.py::test_a_stop_that_is_interrupted_ends_the_campaign",
        (
            "campaign-after-an-interrupted-stop",
            "            campaign.stopping = True\n        campaign = self._current()",
            "            pass\n        campaign = self._current()",
        ),
        ("campaign-after-an-interrupted-body", "campaign.stopping = True  # a signal handler may", "pass  #"),
    ),
    Mutant(
        "stop-in-on_lost-awaits-on_lost",
        "redlock_fast/aio/leader.py",
        "caller in (term.work, term.reporter)",
        "caller is term.work",
        "tests/real/locks/test_leader.py::test_on_lost_begins_a_campaign_and_stops_it",
    ),
    Mutant(
        "a-refused-list-ends-the-campaign",
        "redlock_fast/locks/leader.py",
        "self.refusal, self.pause = error, REST",
        "raise",
        "tests/real/locks/test_leader.py::test_a_refused_list_is_no_end_of_the_campaign",
    ),
    *of(
        "redlock_fast/locks/fair.py",
        judges("unit/algorithm/procedures", "real/locks/fair", "real/locks/fair_model"),
        (
            "ticket-from-too-few-masters",
            "if lists.in_every_quorum(mask_of(self._seen)):",
            "if self._seen:",
        ),
        (
            "entry_token-lost-with-each-round",
            "self.entry_token = self.entry_token or token",
            "self.entry_token = token",
        ),
        (
            "fair-token-kept",
            "new_token_per_round: ClassVar[bool] = True",
            "new_token_per_round: ClassVar[bool] = False",
        ),
        (
            "entry_token-left-behind",
            "[Request(FAIR_LEAVE, args, masters, resend_for)]",
            "self.rollback_requests(token, masters, resend_for)",
        ),
        (
            "entry_token-given-up",
            "requests = [Request(RELEASE, (self.key, token), masters, resend_for)]",
            "requests = self.release_requests(token, masters, resend_for)",
        ),
    ),
    *of(
        "redlock_fast/locks/fair.py",
        judges("real/algorithm/crowds"),
        ("a-dead-head-blocks-plain-locks", "        self._takes = True\n", "        pass\n"),
    ),
    *of(
        "redlock_fast/locks/fair.py",
        judges("unit/locks/fair"),
        ("all-watch-the-lock", "self.key if self.rank == 0 else", "self.key if True else"),
        ("other-tickets-stay", "        if self._silent:\n", "        if False:\n"),
        ("turns-seen-are-forgotten", "        self._first |= masters\n", "        self._first = masters\n"),
        ("no-pause-without-masters", "        self._again = False\n        if not rep", "        if not rep"),
    ),
    *of(
        "redlock_fast/algorithm/attempts.py",
        judges("unit/algorithm/crowds"),
        ("places-although-masters-do-not-push", "policy.push and policy.voters.all_push and", ""),
        ("places-without-the-right", "            crowds.queued = None\n", "            pass\n"),
    ),
    *of(
        "redlock_fast/algorithm/attempts.py",
        judges("unit/algorithm/turn", "real/locks/turn"),
        ("turn-kept-after-the-grant", "                yield from self._end_turn()\n", ""),
        ("turn-without-memory", "        if self.turn.waited:\n", "        if False:\n"),
    ),
    *of(
        "redlock_fast/algorithm/turn.py",
        judges("unit/algorithm/turn", "real/locks/turn"),
        ("turn-that-nobody-finds", "if policy.voters.lists.granted(answers[-1])", "if False"),
        (
            "turn-not-left-where-masters-fail",
            "                for requests in self.abort():\n",
            "                for requests in ():\n",
        ),
    ),
    *of(
        "redlock_fast/algorithm/operations.py",
        judges("unit/algorithm/turn", "real/locks/turn"),
        ("turn-kept-by-what-is-aborted", "            messages += self._retry_loop.release_turn()\n", ""),
    ),
    *of(
        "redlock_fast/locks/multilock.py",
        judges("unit/locks/multilock", "real/locks/multilock"),
        (
            "first-resource-only-extended",
            "return MultiLeaseKind(self.key, self.keys, self.turn_key)",
            "return MultiLeaseKind(self.key, self.keys[:1], self.turn_key)",
        ),
        (
            "first-resource-not-released",
            "masters, resend_for) for key in self.keys]",
            "masters, resend_for) for key in self.keys[1:]]",
        ),
        (
            "resources-in-any-order",
            "keys = sorted(check_resources(core, resources))",
            "keys = list(check_resources(core, resources))",
        ),
        ("waits-for-the-next-resource", "refused = Counter(-value - 1 for", "refused = Counter(-value for"),
        ("faults-pass-for-resources", "if -len(self.keys) <= value < 0)", "if value < 0)"),
    ),
    *of(
        "redlock_fast/locks/rwlock.py",
        judges("unit/locks/kinds", "real/locks/rwlock"),
        ("writer-holds-by-one-name", "self.round += 1", "self.round = 1"),
        (
            "downgraded-by-another-name",
            "lease.lock_kind = Reader(writer.key, writer.suffix)",
            "lease.lock_kind = Reader(writer.key)",
        ),
        (
            "intent-given-up",
            "[Request(Verb.RW_ROLLBACK, (*self.names(token), self.intent), masters, resend_for)]",
            "self.release_requests(token, masters, resend_for)",
        ),
        ("intent-ends-within-a-pause", "max(INTENT, PAUSES * longest)", "longest"),
        ("downgrade-after-the-end", "if lease.lost or start >= lease.deadline:", "if lease.lost:"),
        (
            "writer-does-not-watch-readers",
            "(writer[:-1], writer, readers), masters)",
            "(writer[:-1], writer, writer), masters)",
        ),
    ),
    *of(
        "redlock_fast/locks/semaphore.py",
        judges("unit/locks/kinds"),
        ("slot-free-on-one-master", "if lists.is_quorum(masters)]", "if masters]"),
        (
            "hopes-without-end",
            "self.retry_at_once = self._immediate_retries % MAX_IMMEDIATE_RETRIES != 0",
            "self.retry_at_once = True",
        ),
        (
            "scattered-slots-watched",
            "self._no_common_free = lists.is_quorum(mask_of(self._masters_with_free))",
            "self._no_common_free = False",
        ),
        ("slot-is-not-the-lock", "return LockKind(self.slot)", "return LockKind(self.key)"),
        ("second-window-never", "(self._first + WINDOW) %", "self._first %"),
    ),
    *of(
        "redlock_fast/locks/rlock.py",
        judges("unit/locks/rlock"),
        (
            "released-one-level-early",
            "            if ownership.depth:\n                return False",
            "            if ownership.depth > 1:\n                return False",
        ),
        ("entered-though-lost", "        ownership.lock.check()\n        left:", "        left:"),
        ("entered-once-too-often", "if ownership.depth >= MAX_DEPTH:", "if ownership.depth > MAX_DEPTH:"),
        ("minimum-not-looked-at", "return self.ttl if left < self._min_validity else None", "return None"),
    ),
    Mutant(
        "calls-of-one-name-side-by-side",
        "redlock_fast/locks/owner_queue.py",
        "if type(owner) is NamedOwner else None",
        "if False else None",
        "tests/real/threads/test_rlock.py::test_calls_of_one_name_do_not_exclude_each_other",
    ),
    *of(
        "redlock_fast/locks/rlock.py",
        "tests/real/threads/test_rlock.py::test_another_thread_of_the_name_releases_it_beside_an_extension",
        (
            "released-lock-entered",
            "if not ownership.depth:\n                raise LockLost(",
            "if False:\n                raise LockLost(",
        ),
        (
            "released-lock-not-acquired",
            "            if ownership.depth:\n                raise\n",
            "            if True:\n                raise\n",
        ),
    ),
    *of(
        "redlock_fast/locks/lock_state.py",
        "tests/real/locks/test_handover.py::test_released_while_it_is_taken_over",
        ("taken-over-though-released", "            if not handover.released:\n", "            if True:\n"),
    ),
    *of(
        "redlock_fast/locks/fair.py",
        judges("unit/algorithm/procedures"),
        ("ticket-of-a-bad-master", " if one <= limit)", ")"),
        ("certain-ticket-of-a-bad-master", "of_list[len(of_list) - bad - 1]", "of_list[-1]"),
    ),
    Mutant(
        "take-over-without-a-timeout",
        "redlock_fast/locks/operations.py",
        "        return new_take_over(lock, lock._ttl, wait, body)\n",
        "        return new_take_over(lock, lock._ttl, None, body)\n",
        "tests/real/locks/test_handover.py::test_a_timeout_bounds_a_take_over",
    ),
    *of(
        "redlock_fast/locks/owner_queue.py",
        "tests/real/threads/test_rlock.py::test_with_of_a_name_whose_turn_does_not_come",
        ("turn-without-an-end", "min(LONGEST, left)", "LONGEST"),
        ("any-turn-has-come", "        return self.entry.is_first\n", "        return True\n"),
    ),
    *of(
        "redlock_fast/locks/rlock.py",
        "tests/real/threads/test_rlock.py::test_interrupted_at_any_moment",
        (
            "interrupted-leave-stays-entered",
            "            if left[0] is None:\n                self._decrement(ownership, left)\n",
            "",
        ),
        ("interrupted-leave-leaves-twice", "            if left[0] is None:\n", "            if True:\n"),
        ("interrupted-grant-stays", "            if entered[0] is None:\n", "            if False:\n"),
        ("interrupted-enter-stays-entered", "if entered[0] is not None and", "if False and"),
    ),
    Mutant(
        "a-release-drops-the-next-ownership-of-a-name",
        "redlock_fast/locks/rlock.py",
        "            self._owner.drop(ownership)\n        return True",
        "        self._owner.drop(ownership)\n        return True",
        judges("unit/locks/rlock"),
    ),
    Mutant(
        "a-run-that-another-thread-entered-begins",
        "redlock_fast/locks/single_run.py",
        "            if self._entered:\n                raise LockAlreadyHeld(",
        "            if False:\n                raise LockAlreadyHeld(",
        judges("real/threads/single_run"),
    ),
    Mutant(
        "a-job-goes-on-without-its-lock-at-exit",
        "redlock_fast/masters/masters.py",
        "self.release_at_exit and lease.thread not in used",
        "self.release_at_exit",
        "tests/real/masters/test_at_exit.py::test_jobs_of_daemon_threads_keep_their_locks",
    ),
    Mutant(
        "what-ends-during-the-exit-is-kept",
        "redlock_fast/algorithm/lease.py",
        "        if self.at_exit == AS_CLIENT:\n            self.at_exit = RELEASE_AT_EXIT\n",
        "        pass\n",
        "tests/real/masters/test_at_exit.py::test_jobs_that_end_during_the_exit_keep_nothing",
    ),
    Mutant(
        "a-run-begins-beside-a-skipped-one",
        "redlock_fast/locks/single_run.py",
        "            if self._entered:",
        "            if self._lock is not None:",
        "tests/real/locks/test_single_run.py::test_the_end_of_a_skipped_run_releases_no_lock",
    ),
    Mutant(
        "note-of-a-level-needs-memory",
        "redlock_fast/locks/rlock.py",
        "done[0] = ownership\n            if ownership.depth:",
        "done[:] = [ownership]\n            if ownership.depth:",
        judges("unit/locks/rlock"),
    ),
    Mutant(
        "a-failing-master-decides-an-acquire",
        "redlock_fast/locks/client_base.py",
        'decide == "all" else Wait.CERTAIN',
        'decide == "all" else Wait.EARLY',
        judges("real/masters/outage_truth"),
    ),
    *of(
        "redlock_fast/locks/failures.py",
        judges("real/masters/change"),
        ("only-a-lock-of-both-lists-is-seen", "lacking(have)) < len(lists.lists)", "lacking(have)) < 1"),
        ("one-list-without-the-key-is-free", "silent)) == len(lists.lists)", "silent)) > 0"),
    ),
    Mutant(
        "hung-masters-have-no-cause",
        "redlock_fast/locks/failures.py",
        "lists.failed(votes) or lists.refused(votes)",
        "lists.hopeless(votes)",
        judges("real/masters/outage_truth"),
    ),
    Mutant(
        "an-infinite-timeout-is-the-locks-own",
        "redlock_fast/locks/lock_state.py",
        "        return self._core.note_timeout(seconds)\n",
        "        return self._timeout if seconds is None else seconds\n",
        judges("unit/locks/constructors"),
    ),
    Mutant(
        "a-dropped-lease-is-counted",
        "redlock_fast/locks/auto_extend.py",
        "            self.drop(renewed)\n        else:",
        "            pass\n        else:",
        judges("real/threads/renewal"),
    ),
]

RW = judges("real/locks/rwlock", "real/locks/kinds_model")
LUA = [
    *of(
        "redlock_fast/wire/scripts.py",
        RW,
        (
            "a-reader-shortens-the-set",
            "<tonumber(ms)",
            "",
        ),
        ("reader-beside-the-writer", "if redis.call('exists',w)==1 then return 0 end\n", ""),
        ("reader-passes-intents", "if redis.call('zcard',i)>0 and not", "if false and not"),
        ("writer-beside-readers", " or redis.call('zcard',r)>0", ""),
        (
            "yield-takes-the-holders-vote",
            "if redis.call('get',w)==mine then redis.call('del',w) end\nredis.call('zadd'",
            "redis.call('del',w)\nredis.call('zadd'",
        ),
        ("intent-stays-after-release", "redis.call('zrem',i,place)\nreturn found", "return found"),
        (
            "reader-extended-after-its-end",
            "_EXTEND_READER = b\"\"\"redis.call('zremrangebyscore',r,'-inf',now)\n",
            '_EXTEND_READER = b"""',
        ),
        (
            "downgraded-and-still-writer",
            "  redis.call('del',w)\n  redis.call('zrem',i,place)",
            "  redis.call('zrem',i,place)",
        ),
    ),
    *of(
        "redlock_fast/wire/scripts.py",
        judges("real/locks/multilock", "real/locks/multilock_model"),
        ("some-of-them", "  if redis.call('exists',KEYS[i])==1 then return -i end\n", ""),
        (
            "releases-any-token",
            "if redis.pcall('get',KEYS[i])==ARGV[1] then",
            "if redis.pcall('get',KEYS[i]) then",
        ),
    ),
    *of(
        "redlock_fast/wire/scripts.py",
        judges("real/locks/fair", "real/locks/fair_model"),
        (
            "granted-past-the-queue",
            "if redis.call('exists',key)==0 and (not head or head==place) then",
            "if redis.call('exists',key)==0 then",
        ),
        ("no-turn-passed-on", "redis.call('del',wait_key(place),wait_key(", "redis.call('del',place,("),
        (
            "queue-left-with-the-entry",
            "redis.call('zrem',queue,place)\nredis.call('zrem',entries,place)\nredis.call('del'",
            "redis.call('del'",
        ),
    ),
    Mutant(
        "dead-waiters-stay",
        "redlock_fast/wire/scripts.py",
        "    redis.call('zrem',queue,dead[i])\n",
        "",
        judges("real/locks/fair") + "::test_a_dead_waiter_leaves_the_queue_also_from_its_middle",
    ),
    *of(
        "redlock_fast/wire/scripts.py",
        judges("real/locks/semaphore"),
        ("taken-slots-are-free", "if redis.call('exists',name..n)==0 then", "if true then"),
        (
            "slot-of-another-taken",
            "if redis.call('set',key,token,'nx','px',ttl) then return free+1",
            "if redis.call('set',key,token,'px',ttl) then return free+1",
        ),
    ),
    *of(
        "redlock_fast/wire/scripts.py",
        judges("real/locks/fencing"),
        (
            "fenced-lock-taken-over",
            "if not redis.call('set',key,token,'nx','px',ttl)",
            "if not redis.call('set',key,token,'px',ttl)",
        ),
    ),
    Mutant(
        "lost-counter-stays-behind-the-clock",
        "redlock_fast/wire/scripts.py",
        "if n>1 then clock=clock-clock%(step*1000) end",
        "if n>1 then clock=0 end",
        f"{ORDER}::test_a_counter_is_at_most_a_step_behind_the_clock",
    ),
    Mutant(
        "counter-follows-the-clock-at-each-grant",
        "redlock_fast/wire/scripts.py",
        "if n>1 then clock=clock-clock%(step*1000) end\n",
        "",
        f"{ORDER}::test_masters_agree_on_the_number_in_one_round_trip",
    ),
    Mutant(
        "counter-is-set-back-to-the-clock",
        "redlock_fast/wire/scripts.py",
        "if n>=clock then",
        "if n==clock then",
        f"{ORDER}::test_a_counter_is_not_set_back_to_the_clock",
    ),
    Mutant(
        "key-stays-where-counting-failed",
        "redlock_fast/wire/scripts.py",
        "  redis.call('del',key)\n  return type(n)",
        "  return type(n)",
        f"{ORDER}::test_a_counter_that_is_none_leaves_no_key",
    ),
    *of(
        "redlock_fast/wire/scripts.py",
        f"{ORDER}::test_only_a_master_whose_counter_was_moved_to_the_token_vouches",
        ("lift-of-any-token", "if redis.call('get',key)~=token then return 0 end\nlocal n=", "local n="),
        ("lift-of-an-equal-counter", "n>=target", "n>target"),
        ("lift-of-a-lost-counter", "if not n or n<1 or n>=2^53 then return 0 end", "n=n or 0"),
    ),
    *of(
        "redlock_fast/wire/scripts.py",
        f"{ORDER}::test_a_lift_goes_as_far_as_clocks_may_differ",
        ("lift-however-far", "if n>=target or target>highest then", "if n>=target then"),
        ("lift-of-what-is-ahead", "if n>highest then highest=n+100000 end", ""),
    ),
    *of(
        "redlock_fast/wire/scripts.py",
        judges("real/masters/restart_guard"),
        ("marker-without-silence", "local left=since+wait-now", "local left=0"),
        ("guarded-master-votes", "if left>0 then", "if left<0 then"),
    ),
    *of(
        "redlock_fast/wire/dialect.py",
        judges("unit/wire/commands", "real/masters/servers"),
        ("acquire-overwrites", 'TOKEN, b"NX", b"PX", TTL', 'TOKEN, b"PX", TTL'),
        (
            "release-of-any-token",
            "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del'",
            "if true then return redis.call('del'",
        ),
        ("refill-obeys-the-marker", "Verb.REFILL: plain,", "Verb.REFILL: acquire,"),
        (
            "writer-is-not-undone",
            "Verb.RW_WRITE: _vote(_RW_WRITE, marker, (WRITER, READERS), (HOLDER, SPAN), Verb.RW_RELEASE)",
            "Verb.RW_WRITE: _vote(_RW_WRITE, marker, (WRITER, READERS), (HOLDER, SPAN), Verb.RELEASE)",
        ),
    ),
]

PURE = [
    *of(
        "redlock_fast/engine/pure/request.py",
        CONTRACT,
        ("a-refusal-is-a-grant", "elif value > 0:", "elif value >= 0:"),
        (
            "faults-decide-certainly",
            "self.cannot_have_quorum(self.wait == EARLY)",
            "self.cannot_have_quorum(True)",
        ),
        (
            "decided-one-refusal-late",
            "self.most_against = masters - need",
            "self.most_against = masters - need + 1",
        ),
        ("all-is-not-waited-for", "return self.wait != ALL and (", "return ("),
        (
            "a-quorum-less-one",
            "return self.granted >= self.need and (self.quorums",
            "return self.granted >= self.need - 1 and (self.quorums",
        ),
    ),
    *of(
        "redlock_fast/engine/pure/request.py",
        QUORUMS,
        ("a-list-needs-no-quorum", "(self.quorums is None or self.quorums.granted(self.values))", "True"),
        ("a-list-never-loses-its-quorum", "return not self.quorums.within(sum(may_grant))", "return False"),
        ("a-fault-refuses-a-list", "least = FAULT if faults else FAULT + 1", "least = FAULT"),
    ),
    *of(
        "redlock_fast/engine/messages.py",
        f"{judges('unit/engine/messages')} {QUORUMS}",
        ("one-list-is-enough", "return all((masters & mask)", "return any((masters & mask)"),
    ),
    Mutant(
        "a-batch-grants-by-one-list",
        "redlock_fast/engine/pure/waiter.py",
        "one.granted if has_quorum or request.quorums is None else 0",
        "one.granted",
        QUORUMS,
    ),
    Mutant(
        "mutex-of-a-lost-thread",
        "redlock_fast/engine/mutex.py",
        "if not mutex._is_owned():",
        "if False:",
        judges("unit/engine/mutex"),
    ),
    Mutant(
        "a-slow-master-is-waited-for",
        "redlock_fast/engine/pure/request.py",
        " and not (self.wait == ALL and self.has_quorum())",
        "",
        judges("contract/rule_02_stall"),
    ),
    Mutant(
        "c-a-slow-master-is-waited-for",
        "src/io_round.c",
        "if (op->wait != WAIT_ALL || !hub_has_quorum(op)) hub_restart",
        "hub_restart",
        judges("contract/rule_02_stall"),
    ),
    Mutant(
        "renewal-ends-with-its-task",
        "redlock_fast/aio/renewal.py",
        "task.add_done_callback(self._on_done)",
        "pass",
        judges("real/aio/renewal"),
    ),
    Mutant(
        "renewal-ends-with-a-cancelled-on_lost",
        "redlock_fast/aio/renewal.py",
        "except (Exception, asyncio.CancelledError):  # this",
        "except Exception:  # this",
        judges("real/aio/renewal"),
    ),
    *of(
        "redlock_fast/engine/pure/waiter.py",
        judges("contract/rule_02_late"),
        ("late-wait-ends", "if deadline <= now - LATE and", "if False and"),
        ("late-wait-goes-on-for-ever", "self.late = True", "self.late = False"),
        ("late-stall-ends", "self.last_reply = deadline - self.idle_timeout", "pass"),
        ("late-wait-without-a-bound", "min(late, self.longest)", "late"),
        ("late-wait-with-a-quorum-goes-on", "or request.has_quorum()", ""),
    ),
    *of(
        "src/waiter.c",
        judges("contract/rule_02_late"),
        ("c-late-wait-ends", "if (w->late || late <", "if (1 || late <"),
        ("c-late-wait-without-a-bound", "(late < w->longest_wait ? late : w->longest_wait)", "late"),
        ("c-late-wait-with-a-quorum-goes-on", " && !hub_has_quorum(w->ops[i]))", ")"),
        ("c-late-wait-goes-on-for-ever", "w->late = 1;", "w->late = 0;"),
    ),
    Mutant(
        "a-fourth-master-may-grant",
        "redlock_fast/engine/pure/request.py",
        "mine = (1 << masters) - 1",
        "mine = -1",
        judges("contract/rule_11_watch_model"),
    ),
    *of(
        "redlock_fast/engine/pure/request.py",
        WATCHING,
        ("a-master-votes-twice", "if self.decided or self.values[master] != NO_REPLY:", "if self.decided:"),
        ("watch-ends-with-the-first", "if request.is_quorum(ended):", "if True:"),
        ("no-expiry-passes-for-free", "elif value == -2:", "elif value < 0:"),
    ),
    Mutant(
        "flush-leaves-the-connection",
        "redlock_fast/engine/pure/connection.py",
        "if not self.channel.subscriptions.on_push(self.channel.index, push):",
        "if not self.channel.subscriptions.on_push(self.channel.index, push) and False:",
        FLUSHED,
    ),
    Mutant(
        "flush-unheard-where-nothing-is-watched",
        "redlock_fast/engine/pure/subscriptions.py",
        "return keys is not None",
        "return True",
        FLUSHED,
    ),
    *of(
        "redlock_fast/engine/pure/connection.py",
        CONTRACT,
        ("nil-is-a-grant", 'b"$-1\\r\\n": 0', 'b"$-1\\r\\n": 1'),
    ),
    *of(
        "redlock_fast/engine/pure/connection.py",
        judges("contract/pure_memory"),
        (
            "a-connection-without-memory-goes-on",
            "except (OSError, MemoryError) as error:\n            self.fail(error)\n            return",
            "except OSError as error:\n            self.fail(error)\n            return\n"
            "        except MemoryError:\n            return",
        ),
    ),
    *of(
        "redlock_fast/engine/pure/hub.py",
        judges("unit/engine/pure/hub"),
        ("a-signal-ends-each-poll", "self.pipe.drain()", "pass"),
        ("an-interrupt-leaves-requests", "self.put(partial(self._abandon, me))", "pass"),
        ("a-finalizer-waits-for-its-thread", "self._thread == threading.get_ident()", "False"),
    ),
    Mutant(
        "real-time-signals-in-background-threads",
        "redlock_fast/engine/signals.py",
        "signal.valid_signals()))",
        "range(1, 32)))",
        judges("unit/engine/signals"),
    ),
]

C = [
    *of(
        "src/request.c",
        CONTRACT,
        ("c-a-refusal-is-a-grant", "else if (value > 0) op->granted++", "else if (value >= 0) op->granted++"),
        ("c-faults-decide-certainly", "(faults ? op->faulty : 0)", "op->faulty"),
        ("c-faults-never-decide", "(faults ? op->faulty : 0)", "0"),
        ("c-all-is-not-waited-for", "return op->wait != WAIT_ALL && (", "return ("),
        (
            "c-a-quorum-less-one",
            "return op->granted >= op->quorum.need &&",
            "return op->granted >= op->quorum.need - 1 &&",
        ),
    ),
    *of(
        "src/request.c",
        judges("contract/fork"),
        ("c-child-counts-its-parents-votes", "op->values[i] = HUB_FAULT;", ";"),
        ("c-child-has-its-parents-grants", "op->granted = op->refused =", "op->refused ="),
    ),
    *of(
        "src/request.c",
        QUORUMS,
        (
            "c-a-list-needs-no-quorum",
            "(!op->quorum.lists || hub_is_quorum(op, voters(",
            "(1 || hub_is_quorum(op, voters(",
        ),
        (
            "c-a-list-never-loses-its-quorum",
            "return !hub_is_quorum(op, all &",
            "return 0 && !hub_is_quorum(op, all &",
        ),
        ("c-a-fault-refuses-a-list", "faults ? HUB_FAULT : HUB_FAULT + 1", "HUB_FAULT"),
        (
            "c-one-list-is-enough",
            "for (int i = 0; i < quorum->lists; i++)\n        if (__builtin",
            "for (int i = 0; i < 1; i++)\n        if (__builtin",
        ),
    ),
    Mutant(
        "c-lists-of-lagging-masters",
        "src/waiter.c",
        "!op->resend_for && hub_is_quorum(op, healthy)",
        "!op->resend_for && __builtin_popcountll(healthy) >= op->quorum.need",
        judges("contract/rule_08_lagging"),
    ),
    Mutant(
        "c-a-master-votes-twice",
        "src/request.c",
        "if (hub_has_voted(op, master)) return;\n    op->values",
        "op->values",
        CONTRACT,
        argued="a second line of defence: each caller asks hub_has_voted first, or pops the only reply owed",
    ),
    *of(
        "src/reply.h",
        CONTRACT,
        (
            "c-nil-is-a-grant",
            "*number = 0;\n        return REPLY_NUMBER;",
            "*number = 1;\n        return REPLY_NUMBER;",
        ),
        ("c-zero-is-a-grant", "*number = p[1] - '0';", "*number = 1;"),
    ),
    *of(
        "src/io_round.c",
        f"{CONTRACT} {WATCHING}",
        ("c-skipped-replies-count", "if (slot.kind == SLOT_LEADING) {", "if (0) {"),
        (
            "c-error-is-a-vote",
            "else count_error_reply(op, master, reply);\n    hub_decide_if_determined",
            "else hub_count_vote(op, master, 1);\n    hub_decide_if_determined",
        ),
    ),
    Mutant(
        "c-flush-leaves-the-connection",
        "src/io_round.c",
        "if (!hub_handle_push(h, master, in.data, in.size)) keys_flushed",
        "if (!hub_handle_push(h, master, in.data, in.size) && 0) keys_flushed",
        FLUSHED,
    ),
    *of(
        "src/io_round.c",
        FLUSHED,
        ("c-failed-send-loses-input", "revents & ~POLLOUT && (", "revents & ~POLLOUT && !l->failure[0] && ("),
        (
            "c-failed-flush-loses-input",
            "if (l->received) process_input(h, i, hub_now());\n        break",
            "break",
        ),
    ),
    Mutant(
        "c-flush-unheard-where-nothing-is-watched",
        "src/subscriptions.c",
        "return kind != PUSH_ALL;",
        "return kind != PUSH_ALL || !table->votes;",
        FLUSHED,
    ),
    *of(
        "src/subscriptions.c",
        WATCHING,
        ("c-no-expiry-passes-for-free", "if (pttl == -2) hub_count_vote", "if (pttl < 0) hub_count_vote"),
        ("c-watch-ends-with-the-first", "if (hub_is_quorum(op, ended |= first[i].master))", "if (1)"),
    ),
]

VOTES = judges("real/algorithm/votes")
#: A counted vote is taken back, or shortened: PROTOCOLS, the rule of the vote.
RULE = [
    *of(
        "redlock_fast/engine/pure/connection.py",
        judges("contract/detach", "real/algorithm/votes"),
        ("undo-of-what-is-held", "is not None and request.has_failed(closing)", "is not None"),
        ("closed-without-undo", "request.has_failed(closing)", "request.has_failed()"),
        ("failed-without-undo", "request.has_failed(closing)", "closing and request.has_failed(True)"),
    ),
    *of(
        "src/hub.c",
        judges("contract/detach", "real/algorithm/votes"),
        ("c-undo-of-what-is-held", "if (has_failed(op, closing))", "if (1)"),
        (
            "c-undo-of-what-is-handed-over",
            "return (closing || op->decided) && !hub_has_quorum(op);",
            "return closing || (op->decided && !hub_has_quorum(op));",
        ),
        (
            "c-closed-without-undo-of-one-list",
            "if (op->decided || hub_has_quorum(op)) continue;",
            "if (op->decided || op->granted >= op->quorum.need) continue;",
        ),
        ("c-closed-without-undo", "(closing || op->decided)", "op->decided"),
        ("c-failed-without-undo", "(closing || op->decided)", "closing"),
    ),
    Mutant(
        "closed-without-undo-of-one-list",
        "redlock_fast/engine/pure/hub.py",
        "if request.decided or request.has_quorum():",
        "if request.decided or request.granted >= request.need:",
        judges("contract/detach"),
    ),
    Mutant(
        "undecided-passes-for-failed",
        "redlock_fast/engine/pure/request.py",
        "return (closing or self.decided) and not self.has_quorum()",
        "return not self.has_quorum()",
        judges("contract/detach", "real/algorithm/votes"),
    ),
    *of(
        "redlock_fast/engine/pure/connection.py",
        REPLICATED,
        ("grant-before-replicas", "template.confirm_verb is not None and value > 0", "False"),
        ("replicas-without-their-write", "template is not None or value < 1", "template is not None"),
        ("held-without-undo", "if held.has_failed(closing):", "if False:"),
    ),
    *of(
        "redlock_fast/engine/pure/replicas.py",
        REPLICATED,
        ("one-replica-is-enough", "value < needed", "value < 1"),
        ("a-wait-for-each-flush", "self.verb is not None and not self.pending", "self.verb is not None"),
    ),
    *of(
        "src/replicas.c",
        REPLICATED,
        ("c-one-replica-is-enough", "number < needed", "number < 1"),
        ("c-a-wait-for-each-flush", "if (l->wait_pending) return;", ""),
    ),
    *of(
        "src/io_round.c",
        REPLICATED,
        ("c-grant-before-replicas", "if (t->confirm_verb >= 0 &&", "if (0 &&"),
        ("c-replicas-without-their-write", "(kind != REPLY_NUMBER || number < 1)", "0"),
    ),
    *of(
        "src/hub.c",
        REPLICATED,
        ("c-held-without-undo", "verb < l->verbs && has_failed(op, closing)", "0"),
    ),
    *of(
        "redlock_fast/wire/dialect.py",
        judges("unit/wire/commands", "real/algorithm/votes"),
        ("fallback-before-replicas", "fallback=fallback, confirm_verb=Verb.WAIT", "confirm_verb=Verb.WAIT"),
        ("extension-shortens", "ARGV[2],'gt')", "ARGV[2])"),
        (
            "extension-shortens-before-7",
            "if redis.call('pttl',KEYS[1])<tonumber(ARGV[2]) then",
            "if true then",
        ),
        (
            "extension-of-any-token",
            "if redis.call('get',KEYS[1])~=ARGV[1] then return 0 end \"\n    b\"redis",
            '"\n    b"redis',
        ),
    ),
    *of(
        "redlock_fast/wire/scripts.py",
        VOTES,
        (
            "reader-is-shortened",
            "if not redis.call('zscore',r,mine) then return 0 end\nredis.call('zadd',r,'gt',",
            "if not redis.call('zscore',r,mine) then return 0 end\nredis.call('zadd',r,",
        ),
        (
            "writer-is-shortened",
            'then\n  outlive(w,ttl)\n  return 1\nend\n"""',
            'then\n  redis.call(\'pexpire\',w,ttl)\n  return 1\nend\n"""',
        ),
    ),
    Mutant(
        "downgrade-shortens",
        "redlock_fast/wire/scripts.py",
        "math.max(redis.call('pttl',w),tonumber(ttl))",
        "tonumber(ttl)",
        judges("real/locks/rwlock") + "::test_a_late_downgrade_shortens_nothing",
    ),
    *of(
        "redlock_fast/algorithm/tokens.py",
        judges("unit/algorithm/tokens"),
        ("clones-draw-equal-tokens", "number ^ machine.boot_time_ns()", "number"),
        ("children-draw-equal-tokens", "in_child_of_fork(_drawn.clear)", "in_child_of_fork(list)"),
    ),
]

#: Greenlets share a thread, and a child of fork has copies of them.
GREENLETS = [
    *of(
        "redlock_fast/engine/__init__.py",
        judges("unit/engine/load"),
        ("native-beside-greenlets", 'if name == "native":\n            raise', "if 0:\n            raise"),
        ("half-a-patch", "        check_patches()\n", ""),
    ),
    *of(
        "redlock_fast/engine/greenlets.py",
        judges("real/threads/gevent") + "::test_a_worker_of_gunicorn_that_patches_after_its_client_was_made",
        ("a-late-patch-is-found-at-each-request", "            made.check_patch()\n", "            pass\n"),
    ),
    *of(
        "redlock_fast/masters/change.py",
        judges("real/threads/fork"),
        ("child-continues-a-change", "if connector.monitor.ended():", "if False:"),
    ),
    *of(
        "redlock_fast/masters/change.py",
        judges("real/masters/change"),
        ("another-database-is-the-same-master", "if one.database != before.database:", "if False:"),
    ),
    *of(
        "redlock_fast/masters/electorate.py",
        judges("unit/masters/connector"),
        ("child-votes-as-its-parent", "if self._monitor.ended():  # in a child", "if False:  # in a child"),
    ),
    *of(
        "redlock_fast/masters/link.py",
        judges("unit/masters/link"),
        ("one-look-at-a-silent-master", "elif not self.since or (paused", "elif (paused"),
        ("a-pause-is-a-second-look", "or (paused and self.pauses < MAX_PAUSES)", ""),
        ("hung-for-ever-on-a-busy-machine", "(paused and self.pauses < MAX_PAUSES)", "paused"),
    ),
    *of(
        "redlock_fast/masters/roster.py",
        judges("unit/masters/connector"),
        (
            "child-votes-for-former-lists",
            "return Roster(copies, self.voters, self.former)",
            "return Roster(copies, self.voters, FormerLists(60.0))",
        ),
    ),
    *of(
        "redlock_fast/engine/pure/loop_side.py",
        judges("contract/rule_10_loop_cancel"),
        ("the-descriptor-ends-before-coroutines", "    __del__ = close\n", ""),
    ),
    Mutant(
        "child-records-its-parents-grant",
        "redlock_fast/locks/lock_state.py",
        "if self._generation != self._client_state.generation():\n            raise",
        "if False:\n            raise",
        judges("real/threads/fork"),
    ),
    *of(
        "redlock_fast/threads/operations.py",
        judges("real/threads/fork"),
        ("child-asks-for-its-parents-token", "None and state.known_generation == generation:", "None:"),
        ("child-has-its-parents-lock", "if state.known_generation != generation:", "if False:"),
        (
            "child-releases-its-parents-token",
            "        if state.generation() != generation:\n            operation.close()\n",
            "        if False:\n            operation.close()\n",
        ),
    ),
    Mutant(
        "a-guarded-master-keeps-its-old-name",
        "redlock_fast/engine/contract.py",
        'frozenset((b"GUARDED", ',
        "frozenset((",
        "tests/real/masters/test_identity.py::test_a_promoted_master_whose_history_changes_votes_again",
    ),
    Mutant(
        "cancelled-release-takes-a-later-lease",
        "redlock_fast/locks/operations.py",
        "        lease = self.lease\n        if lease is None or not",
        "        lease = self.lock._lease or self.lease\n        if lease is None or not",
        "tests/real/aio/test_driver.py::test_a_cancelled_release_leaves_a_later_lease",
    ),
    *of(
        "redlock_fast/engine/pure/hub.py",
        judges("unit/engine/pure/hub"),
        ("child-counts-its-parents-votes", "request.forget()", "request.decide()"),
    ),
    Mutant(
        "a-signal-keeps-what-is-the-parents",
        "redlock_fast/engine/fork.py",
        "signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)",
        "pass",
        judges("real/threads/fork"),
    ),
    Mutant(
        "a-closed-loop-keeps-what-it-was-granted",
        "redlock_fast/aio/loop.py",
        "if self.loop.is_closed():",
        "if False:",
        judges("real/aio/loop"),
    ),
    Mutant(
        "a-second-close-ends-the-first",
        "redlock_fast/aio/loop.py",
        "if self._closed is None:",
        "if True:",
        judges("real/aio/loop"),
    ),
    Mutant(
        "failed-send-loses-input",
        "redlock_fast/engine/pure/hub.py",
        "if event != select.POLLOUT:",
        "if event != select.POLLOUT and not connection.failure:",
        FLUSHED,
    ),
    *of(
        "redlock_fast/masters/bounded_socket.py",
        judges("unit/masters/bounded_socket"),
        (
            "child-reads-its-parents-replies",
            "in_child_of_fork(_after_fork_in_child)",
            "in_child_of_fork(list)",
        ),
        ("child-connects-for-its-parent", "if os.getpid() != process:", "if False:"),
    ),
    *of(
        "redlock_fast/engine/signals.py",
        judges("real/threads/gevent") + "::test_locks_are_renewed_while_a_greenlet_waits",
        ("a-greenlet-blocks-all-signals", "    if patched_by():\n        return None\n", ""),
    ),
    *of(
        "redlock_fast/locks/owners.py",
        judges("real/threads/gevent") + "::test_greenlets_take_turns",
        ("greenlets-own-together", "threading.local()", 'type("Shared", (), {})()'),
    ),
]

TLS = [
    *of(
        "redlock_fast/engine/tls.py",
        judges("unit/engine/tls"),
        (
            "an-end-behind-data-is-lost",
            "                    self._report_end()\n                    break",
            "                    break",
        ),
        (
            "a-reply-before-a-damaged-record-is-lost",
            "            if not records:\n",
            "            if True:\n",
        ),
        ("tls-at-the-exit", "    if ended:", "    if False:"),
        ("tls-without-data-has-no-end", "if self._excess > MAX_EXCESS:", "if False:"),
    ),
    Mutant(
        "a-fatal-alert-is-an-end",
        "redlock_fast/engine/tls_errors.py",
        'if result == b"":',
        "if False:",
        judges("unit/engine/tls_errors"),
    ),
]

MEASURED = [
    *of(
        "redlock_fast/exporters/instrument.py",
        judges("real/exporters/durations", "real/exporters/telemetry", "real/threads/operations"),
        ("a-hold-outlasts-its-lease", "min(now, lease.deadline) - granted_at", "now - granted_at"),
        ("a-recorder-breaks-its-lock", "except Exception as failure:", "except LookupError as failure:"),
    ),
    *of(
        "redlock_fast/exporters/metrics.py",
        judges("real/exporters/telemetry") + "::test_a_meter_that_fails_undoes_no_grant",
        ("a-meter-breaks-its-lock", "except Exception as error:", "except LookupError as error:"),
    ),
    *of(
        "redlock_fast/otel.py",
        judges("real/exporters/telemetry"),
        ("spans-of-unsampled-traces", "if context.is_valid and not", "if False and not"),
    ),
    *of(
        "redlock_fast/exporters/multiprocess.py",
        judges("real/exporters/multiprocess"),
        ("a-child-counts-for-its-parent", "at.get() - self._before.get(key, 0.0)", "at.get()"),
        ("counts-of-the-exit-are-lost", "atexit.register(_write_last, weakref.ref(self))", "pass"),
    ),
    *of(
        "redlock_fast/locks/client_core.py",
        judges("unit/exporters/durations"),
        ("labels-without-bound", "if len(self._labels) <= MAX_LABELS:", "if True:"),
    ),
    *of(
        "redlock_fast/locks/operations.py",
        judges("real/exporters/durations", "real/exporters/telemetry"),
        ("acquires-are-not-measured", "state.observer.reports, self.policy.clock()", "None, 0.0"),
        (
            "releases-are-not-measured",
            "observer.reports, self.policy.clock()\n        if self",
            "None, 0.0\n        if self",
        ),
    ),
    Mutant(
        "a-lease-that-was-given-up-is-reported-as-released",
        "redlock_fast/aio/lock.py",
        "if self._lease is not None and not self._in_another_body(self._lease):",
        "if not self._in_another_body(self._lease):",
        judges("real/exporters/telemetry"),
    ),
]

#: Jobs and schedulers of other packages.
JOBS = [
    *of(
        "redlock_fast/integrations/celery.py",
        judges("real/integrations/celery"),
        ("name-of-self-and-arguments", "args[bound:]", "args"),
        ("contended-by-another-lock-is-tried-again", "if began or if_taken", "if if_taken"),
        ("delay-takes-any-arguments", "= inspect.signature(function)", "= None"),
    ),
    *of(
        "redlock_fast/integrations/celery_beat.py",
        judges("real/integrations/celery_beat"),
        ("a-beat-sends-after-its-leadership", "if self._leader.is_leader:  # still", "if True:  # still"),
        ("a-new-leader-sends-again", "if unmarked or again:", "if True:"),
        ("a-leader-has-no-mark-beside-another", "marks.read() if again else marks.write()", "marks.write()"),
        ("a-new-leader-sends-what-is-old", "if now - held[1] < keep", "if True"),
        ("a-long-outage-leaves-a-run-out", "(entry, now) for name,", "(entry, _) for name,"),
        ("a-standby-leaves-runs-out", "self._withheld[entry.name] = entry, time.monotonic()", "pass"),
    ),
    *of(
        "redlock_fast/integrations/django/views.py",
        judges("real/integrations/django/project"),
        ("a-transaction-is-around-the-lock", ", durable=True", ""),
    ),
    *of(
        "redlock_fast/integrations/sqlalchemy.py",
        judges("real/integrations/sqlalchemy"),
        ("an-or-in-a-text-opens-the-fence", "Grouping(and_(*criteria))", "*criteria"),
        ("a-value-replaces-the-token", "if name in self._fence:", "if False:"),
        ("a-parameter-replaces-the-token", ".values({column: value})", ".values({column: token})"),
        ("a-parameter-replaces-the-token-compared", "column <= value", "column <= token"),
    ),
]

#: Drop-ins for other libraries.
DROP_INS = [
    *of(
        "redlock_fast/compat/_holds.py",
        judges("real/locks/shared_objects"),
        ("a-late-holder-has-the-next-ones-hold", "if own is None or own.ended_by_other or", "if True or"),
    ),
    *of(
        "redlock_fast/compat/redlock.py",
        judges("real/compat/arguments"),
        ("no-masters-are-this-machine", "if connection_details is None", "if not connection_details"),
    ),
    *of(
        "redlock_fast/compat/aioredlock.py",
        judges("real/compat/aio"),
        ("a-longer-lock-timeout-is-ignored", "ttl = lock.lock_timeout if", "ttl = lock.held.ttl if"),
    ),
    *of(
        "redlock_fast/compat/_clients.py",
        judges("real/compat/threads", "real/compat/aio"),
        ("a-dropped-lock-is-not-extended", "_threads.kept.add(lock)", "pass"),
        ("a-dropped-lock-of-a-task-is-not-extended", "_of_running_loop().kept.add(lock)", "pass"),
    ),
    *of(
        "redlock_fast/compat/_kept.py",
        judges("unit/compat/kept"),
        ("held-locks-are-removed", "if not self._is_held(other):", "if True:"),
        ("ended-locks-pile-up", "if len(self._all) >= self._prune_at:", "if False:"),
    ),
]

MUTANTS = [*RULE, *ALGORITHM, *GUARD, *KINDS, *LUA, *PURE, *C, *GREENLETS, *TLS, *MEASURED, *JOBS, *DROP_INS]
