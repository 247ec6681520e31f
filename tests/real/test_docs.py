"""Every Python block of every page runs, on real masters."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from pathlib import Path

import prometheus_client
import pytest
from support.doc_pages import PAGES, ROOT, Changes, Page, asserting, blocks, name_of

from redlock_fast import RedlockError
from redlock_fast.compat import close_all
from redlock_fast.embedded import Masters
from redlock_fast.locks.client_base import BaseClient
from redlock_fast.masters.masters import _all_masters

from .conftest import PATIENT


@pytest.fixture(autouse=True)
def settings_of_a_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Pages say nothing of patience, which a busy machine needs, and name ports, which may be taken."""
    defaults = inspect.unwrap(BaseClient.__init__).__kwdefaults__
    assert defaults is not None
    for option, value in PATIENT.items():
        monkeypatch.setitem(defaults, option, value)
    served, before = [], set(_all_masters)

    def serve(port: int) -> None:
        served.append(original(0))

    original = prometheus_client.start_http_server
    monkeypatch.setattr(prometheus_client, "start_http_server", serve)
    yield
    close_all()
    for masters in set(_all_masters) - before:  # a page may make clients inside of a framework
        masters.close()
    for server, thread in served:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize("path", [page for page in PAGES if blocks(page, "python")], ids=name_of)
def test_the_blocks_of_a_page_run(path: Path, valkey: Masters) -> None:
    with contextlib.ExitStack() as stack:
        second = [stack.enter_context(Masters(5))] if "redis://10.0.1." in path.read_text() else []
        page = Page(path, valkey, *second)
        page.run()
    if page.skipped:
        pytest.skip(f"all but {len(page.skipped)} ran: {'; '.join(page.skipped)}")


@pytest.mark.parametrize("name", ["README.md", "docs/index.md", "docs/tutorial.md"])
def test_a_reader_can_paste_the_blocks(name: str, valkey: Masters) -> None:
    """One after the other, into one Python. Catches: a name that only a hidden block defines."""
    Page(ROOT / name, valkey, pasted=True).run()


ASSERTING = [(page, block, marks) for page in PAGES for block, marks in asserting(page)]
FAILING = [(page, block, changes) for page, block, marks in ASSERTING for changes in marks]


def test_each_block_that_asserts_says_how_it_fails() -> None:
    unmarked = [f"{name_of(page)}: {block[:60]!r}" for page, block, marks in ASSERTING if not marks]
    assert not unmarked, "write <!-- fails with: OLD => NEW --> before these blocks"


@pytest.mark.parametrize(
    ("path", "block", "changes"),
    FAILING,
    ids=[f"{name_of(page)}-{n}" for n, (page, *_) in enumerate(FAILING)],
)
def test_a_block_fails_without_its_cause(path: Path, block: str, changes: Changes, valkey: Masters) -> None:
    """Catches: an example that asserts what holds anyway, as the tests that readers copy from it would."""
    page = Page(path, valkey, changed=(block, changes))
    with pytest.raises((AssertionError, RedlockError, TypeError)):
        page.run()
