"""What the documents name is there: files, tests, commands, settings. Their Python is run elsewhere, in
``tests/real/test_docs.py``.
"""

from __future__ import annotations

import argparse
import inspect
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis.lock
import yaml
from support.cases import cases
from support.doc_pages import PAGES, ROOT, blocks, name_of

import redlock_fast
import redlock_fast.compat.aioredlock
import redlock_fast.compat.pottery
import redlock_fast.compat.redlock
import redlock_fast.compat.redlock_py
from redlock_fast import FastRedlock, Lock, Retry
from redlock_fast.cli.arguments import COMMANDS, parse
from redlock_fast.cli.settings import load

#: Files that the text names. They are no links, as the site has only docs/. (Results come and go.)
NAMED = r"`((?:tests|benchmarks(?!/results)|deploy|docs|redlock_fast|src|\.ci)/[^`\s]+)`"
#: Where the command stands in a line: of a shell, behind assignments; of a crontab; of a systemd unit.
COMMAND = re.compile(
    r"^(?:ExecStart=|(?:[\d*/,-]+\s+){5}|.*&&\s+)?(?:\w+=\S+\s+)*(?:\S*/)?redlock-fast\s+(?P<words>.+)$"
)
#: Ends a command, unless it belongs to the one that ``exec`` runs, which takes all words there are.
OPERATORS = ("|", "||", "&", "&&", ";", ">", "<")

#: The addresses of the project, which README, mkdocs.yml and the pages repeat.
URLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
TREES = (f"{URLS['Source']}/blob/main/", "https://raw.githubusercontent.com/redlock-fast/redlock-fast/main/")
LINK = re.compile(r"\]\(([^)\s]+)\)")

every_page = cases("page", PAGES, ids=name_of)


def moved(library: str) -> tuple[str, str]:
    """The columns of a library's table in "Parameter by parameter": its parameters, and ours."""
    page = (ROOT / "docs" / "migration.md").read_text().partition("## Parameter by parameter")[2]
    table = page.partition(f"### {library}\n")[2].partition("\n#")[0]
    rows = [row.split("|")[1:3] for row in table.splitlines() if row.startswith("| `")]
    return "\n".join(theirs for theirs, _ in rows), "\n".join(ours for _, ours in rows)


REDLOCKS = "redlock-py, redlock, redlock-ng, redlock-plus"
OTHERS = ("redis-py, valkey-py", REDLOCKS, "pottery", "aioredlock")


@pytest.mark.parametrize("library", OTHERS)
def test_parameters_that_a_migration_names_are_ours(library: str) -> None:
    functions = (FastRedlock, FastRedlock.lock, Lock.acquire, Lock.extend, Retry)
    ours = {name for function in functions for name in inspect.signature(function).parameters}
    named = set(re.findall(r"\b(\w+)=", moved(library)[1]))
    assert named
    assert named <= ours


@pytest.mark.parametrize(
    ("library", "function"),
    [
        ("redis-py, valkey-py", redis.lock.Lock),
        ("redis-py, valkey-py", redis.lock.Lock.acquire),
        ("redis-py, valkey-py", redis.lock.Lock.extend),
        (REDLOCKS, redlock_fast.compat.redlock_py.Redlock),
        (REDLOCKS, redlock_fast.compat.redlock_py.Redlock.lock),
        (REDLOCKS, redlock_fast.compat.redlock.RedLock),
        ("pottery", redlock_fast.compat.pottery.Redlock),
        ("pottery", redlock_fast.compat.pottery.Redlock.acquire),
        ("aioredlock", redlock_fast.compat.aioredlock.Aioredlock),
        ("aioredlock", redlock_fast.compat.aioredlock.Aioredlock.lock),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__qualname__,
)
def test_every_parameter_of_the_original_has_a_row(library: str, function: Callable[..., Any]) -> None:
    """Drop-ins have the parameters of their originals."""
    theirs = set(inspect.signature(function).parameters) - {"self", "redis", "options"}
    assert sorted(name for name in theirs if not re.search(rf"`{name}\b", moved(library)[0])) == []


@every_page
def test_files_and_tests_that_are_named_exist(page: Path) -> None:
    for name in re.findall(NAMED, page.read_text()):
        path, _, function = name.partition("::")
        assert any(ROOT.glob(path.rstrip("/"))), name
        assert not function or f"def {function}(" in (ROOT / path).read_text(), name


@every_page
def test_links_lead_somewhere_on_github_and_in_the_site(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text()):
        path = (page.parent / target).resolve()
        assert path.exists(), target
        assert page.parent == ROOT or path.is_relative_to(ROOT / "docs"), f"{target}: the site has only docs/"


def anchors(page: Path) -> set[str]:
    """Those of the headings of a page, as the site and GitHub make them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(" ", "-", re.sub(r"[^\w\- ]", "", title.lower()).strip()) for title in titles}


@every_page
def test_anchors_of_links_exist(page: Path) -> None:
    """The site checks its own pages. Catches: an anchor that is gone, in what is on GitHub only."""
    for target, anchor in re.findall(r"\]\(([^)#:\s]*)#([^)]+)\)", page.read_text()):
        path = page.parent / target if target else page
        if path.suffix == ".md" and path.parent.name != "reference":
            assert anchor in anchors(path), f"{target}#{anchor}"


def test_the_readme_has_no_relative_links() -> None:
    """A package index shows it without the repository's files."""
    links = LINK.findall((ROOT / "README.md").read_text())
    assert [link for link in links if not link.startswith("https://")] == []


@every_page
def test_links_to_the_repository_lead_to_a_file(page: Path) -> None:
    for link in LINK.findall(page.read_text()):
        for tree in TREES:
            if link.startswith(tree):
                assert (ROOT / link.removeprefix(tree).partition("#")[0]).exists(), link


def test_the_site_and_the_package_have_the_same_addresses() -> None:
    lines = (ROOT / "mkdocs.yml").read_text().splitlines()
    settings = {key: yaml.safe_load(value) for key, _, value in (line.partition(": ") for line in lines[:12])}
    assert (settings["site_url"], settings["repo_url"]) == (URLS["Documentation"], URLS["Source"])
    index = (ROOT / "docs" / "index.md").read_text()
    assert URLS["Source"] in LINK.findall(index)
    assert "<!-- version -->" in index


@pytest.mark.parametrize("name", ["README.md", "docs/index.md", "docs/tutorial.md"])
def test_code_of_the_first_pages_fits_a_narrow_window(name: str) -> None:
    for language in ("python", "sh"):
        for block in blocks(ROOT / name, language):
            assert [line for line in block.splitlines() if len(line) > 76] == []


@every_page
def test_tables_are_whole(page: Path) -> None:
    """Catches: an empty line in a table, after which the other rows are shown as text."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert re.match(r"\|.*\|\n\|[ :|-]+\|\n", table), table


@every_page
def test_every_fence_is_understood(page: Path) -> None:
    """Nothing is passed over because it is called otherwise, or not closed, or left out without a reason."""
    opened = re.findall(r"^ *```+ *(py.*)$", page.read_text(), re.MULTILINE)
    hidden = re.findall(r"^<!-- invisible-code-block: (.*)$", page.read_text(), re.MULTILINE)
    assert {*opened, *hidden} <= {"python"}
    assert len(blocks(page, "python")) == len(opened) + len(hidden)
    for left_out in re.findall(r"<!--.*\bskip:(.*)-->", page.read_text()):
        reason = r' ((next|start) (if\(.+, reason=)?"[^"]{10,}"\)?|end) '
        assert re.fullmatch(reason, left_out), 'say why: <!-- skip: next "needs a cluster" -->'


def test_there_are_blocks_to_be_run() -> None:
    assert sum(len(blocks(page, "python")) for page in PAGES) > 15


@cases("name", redlock_fast.__all__)
def test_every_public_name_is_in_the_reference(name: str) -> None:
    reference = "".join(page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md"))
    assert f"::: redlock_fast.{name}\n" in reference or hasattr(redlock_fast.errors, name)
    assert "::: redlock_fast.errors\n" in reference


def commands(page: Path) -> Iterator[list[str]]:
    """The arguments of each ``redlock-fast`` in a page's blocks."""
    for language in ("sh", "crontab", "ini"):
        for line in "".join(blocks(page, language)).replace("\\\n", " ").splitlines():
            found = COMMAND.match(line)
            if found:
                words = shlex.shlex(found["words"], posix=True, punctuation_chars=True)
                words.whitespace_split = True
                yield list(words)


@every_page
def test_commands_are_understood(page: Path) -> None:
    for words in commands(page):
        end = next((place for place, word in enumerate(words) if word in OPERATORS), len(words))
        assert exit_code(words[:end]) == 0, f"redlock-fast {shlex.join(words)}"


def exit_code(words: list[str]) -> object:
    """What the parser ends with."""
    try:
        parse(words)
    except SystemExit as end:
        return end.code
    return 0


def test_every_page_of_the_site_is_in_its_navigation() -> None:
    """Catches: a page that no reader finds but by a link."""
    listed = re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    docs = ROOT / "docs"
    pages = [page.relative_to(docs).as_posix() for page in docs.rglob("*.md")]
    assert sorted(listed) == sorted(page for page in pages if not page.startswith("internals/"))


def test_all_documents_together_have_at_most_so_many_words() -> None:
    """``wc -w``. Catches: pages that grow until nobody reads them."""
    assert sum(len(page.read_text().split()) for page in PAGES) <= 38_000


def test_every_command_is_in_the_reference() -> None:
    page = (ROOT / "docs" / "reference" / "cli.md").read_text()
    shown = re.findall(r"^## redlock-fast (\w+)\n\n<!-- help: \1 -->$", page, re.MULTILINE)
    assert shown == list(COMMANDS)


def test_there_are_commands() -> None:
    assert sum(1 for page in PAGES for _ in commands(page)) > 5


@every_page
def test_settings_in_files_are_understood(page: Path, tmp_path: Path) -> None:
    for block in blocks(page, "toml"):
        if "redlock-fast" in tomllib.loads(block):
            file = tmp_path / "settings.toml"
            file.write_text(block)
            settings = load(argparse.Namespace(config=str(file), masters=None))
            FastRedlock(**settings.client()).close()
