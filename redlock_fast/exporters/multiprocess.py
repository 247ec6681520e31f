"""Writes the metrics of one process to the files of prometheus_client's multiprocess mode.

In that mode any worker may answer a scrape, by the files of all workers, so no collector is asked. A thread
of each worker writes what its collector would answer. Locks do not write: a fork may copy a mutex of
prometheus_client while it is locked, and a lock of the child would then wait without end.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Collection, Iterator
from typing import Any

from prometheus_client import values

from ..engine.fork import in_child_of_fork
from ..errors import ConfigError
from ..telemetry import EventLog
from .metrics import METRICS

FOLDER = "PROMETHEUS_MULTIPROC_DIR"
MERGE: dict[str, str] = {f"redlock_fast_{metric.name}": f"live{metric.merge}" for metric in METRICS}

Key = tuple[str, str, tuple[tuple[str, str], ...]]

#: Locked while files are written, and during a fork: no child gets a locked mutex of prometheus_client.
_writing = threading.Lock()


def client_of(key: Key) -> str:
    """The name of the client whose value it is."""
    return dict(key[2])["client"]


def multiprocess_mode() -> bool:
    """Whether prometheus_client writes files, as the environment said at its import."""
    return values.ValueClass is not values.MutexValue


class MultiprocessFiles:
    """Writes what ``collector`` collects, every ``every`` seconds and when the process exits.

    Raises ConfigError if the folder is missing.
    """

    def __init__(self, collector: Any, every: float) -> None:
        if not os.path.isdir(os.environ.get(FOLDER, "")):
            raise ConfigError(f"{FOLDER} must be an existing directory, not {os.environ.get(FOLDER)!r}")
        self._collector = weakref.ref(collector)
        self._every = every
        self._events = EventLog()
        self._values: dict[Key, tuple[Any, float]] = {}
        self._before: dict[Key, float] = {}  # the counts of the parent, which its own file has
        self._start()
        _instances.add(self)
        atexit.register(_write_last, weakref.ref(self))

    def write(self) -> None:
        """Write the present values. An error is logged."""
        try:
            with _writing:
                self._write()
        except Exception as error:
            self._events.warn_of(
                "recorder-error", f"metrics were not written: {type(error).__name__}: {error}"
            )

    def forget(self, alive: Collection[str]) -> None:
        """Keep the counts of clients that are not ``alive``: a later client of that name adds its own."""
        self.write()  # what was counted since the last time
        with _writing:
            self._before = {key: count for key, count in self._before.items() if client_of(key) in alive}
            for key, (at, _) in self._values.items():
                if key[0] != "gauge" and client_of(key) not in alive:
                    self._values[key] = at, at.get()

    def _write(self) -> None:
        written = set()
        for family, key, value in self._samples():
            if key not in self._values:
                self._values[key] = self._open(family, key)
            at, start = self._values[key]
            at.set(value + start)
            written.add(key)
        for key in self._values.keys() - written:
            if key[0] == "gauge":  # of a client that was closed; its counts stay
                self._values[key][0].set(0.0)

    def _open(self, family: Any, key: Key) -> tuple[Any, float]:
        """The value in the file, and what to add to each count: the file of an earlier process may exist."""
        kind, name, labels = key
        at: Any = values.ValueClass(
            kind,
            family.name,
            name,
            tuple(label for label, _ in labels),
            tuple(value for _, value in labels),
            family.documentation,
            multiprocess_mode=MERGE[family.name],
        )
        return at, 0.0 if kind == "gauge" else at.get() - self._before.get(key, 0.0)

    def _samples(self) -> Iterator[tuple[Any, Key, float]]:
        """The samples of all metrics. A file has the count of each bucket alone, and no sum of counts."""
        collector = self._collector()
        for family in collector.families(closed=True) if collector is not None else ():
            below = 0.0
            for sample in family.samples:
                value = sample.value
                if sample.name.endswith("_bucket"):
                    below, value = (
                        (value, value - below) if sample.labels["le"] != "+Inf" else (0.0, value - below)
                    )
                elif family.type == "histogram" and sample.name.endswith("_count"):
                    continue
                yield family, (family.type, sample.name, tuple(sample.labels.items())), value

    # --- the thread ---

    def _start(self) -> None:
        thread = threading.Thread(target=_run, args=(weakref.ref(self), self._every), daemon=True)
        thread.name = "redlock-fast metrics"
        thread.start()

    def after_fork_in_child(self) -> None:
        self._values = {}
        self._before = {key: value for _, key, value in self._samples() if key[0] != "gauge"}
        self._start()


def _run(files: weakref.ref[MultiprocessFiles], every: float) -> None:
    pause = threading.Event()
    while (one := files()) is not None and one._collector() is not None:
        one.write()
        del one
        pause.wait(every)


def _write_last(files: weakref.ref[MultiprocessFiles]) -> None:
    one = files()
    if one is not None:
        one.write()


_instances: weakref.WeakSet[MultiprocessFiles] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    _writing.release()
    for one in list(_instances):
        one.after_fork_in_child()


os.register_at_fork(before=_writing.acquire, after_in_parent=_writing.release)
in_child_of_fork(_after_fork_in_child)
