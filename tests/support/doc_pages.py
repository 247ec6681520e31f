"""The documents as what can be run: the Python blocks of a page, in their order and in one namespace.

Sybil finds the blocks, the hidden ones too (``<!-- invisible-code-block: python ... -->``), and those to
leave out (``<!-- skip: next "why" -->``). ``redis://10.0.G.M`` stands for master M of group G.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import re
from pathlib import Path
from typing import Any
from unittest import SkipTest

from prometheus_client import REGISTRY
from sybil import Document, Example
from sybil.evaluators.python import pad
from sybil.parsers.markdown import CodeBlockParser, SkipParser

from redlock_fast.embedded import Masters
from redlock_fast.locks.client_base import BaseClient
from redlock_fast.prometheus import RedlockCollector
from redlock_fast.sharded.placement import Sharding

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


#: Before a block that asserts something: how it fails when the cause is removed, as ``OLD => NEW``.
FAILS_WITH = re.compile(r"<!-- fails with: (.+) -->\n")
MARKED = re.compile(r"((?:<!-- [^\n]+ -->\n\n)*)^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)

Changes = tuple[tuple[str, str], ...]


def asserting(page: Path) -> list[tuple[str, list[Changes]]]:
    """The visible blocks that assert something, and the changes after which each of them must fail."""
    found = []
    for comments, block in MARKED.findall(page.read_text()):
        marks = FAILS_WITH.findall(comments)
        changes = [tuple(tuple(one.split(" => ", 1)) for one in mark.split(" && ")) for mark in marks]
        if re.search(r"^\s*assert ", block, re.MULTILINE):
            found.append((block, changes))
    return found


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, language: str) -> list[str]:
    """The blocks of one language, to be read."""
    parser = CodeBlockParser(language, evaluator=lambda example: None)
    return [str(example.parsed) for example in Document.parse(str(page), parser)]


class Page:
    """``skipped``: the reasons, of blocks that were left out. ``changed``: one block with other text.

    ``pasted``: as a reader pastes the blocks into Python: without hidden ones, and without ``await`` outside
    of functions.
    """

    def __init__(
        self, page: Path, *groups: Masters, changed: tuple[str, Changes] = ("", ()), pasted: bool = False
    ) -> None:
        self._changed, self._pasted = changed, pasted
        self.skipped: list[str] = []
        self._runner = asyncio.Runner()
        self._groups = groups
        self._document = Document.parse(
            str(page), CodeBlockParser("python", evaluator=self._evaluate), SkipParser()
        )
        self._document.namespace["__name__"] = page.stem

    def run(self) -> None:
        """Raises what a block raises, with its line in the page. Closes clients and collectors at the end."""
        with self._runner:
            try:
                for example in self._document:
                    try:
                        example.evaluate()
                    except SkipTest as skip:
                        self.skipped.append(str(skip))
            finally:
                self._close()

    def _evaluate(self, example: Example) -> None:
        parsed, flags = str(example.parsed), 0 if self._pasted else ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        if self._pasted and self._document.text[example.region.start :].startswith("<!--"):
            return
        block, changes = self._changed
        if parsed.strip() == block.strip():
            for old, new in changes:
                assert old in parsed, f"the block has no {old!r}"
                parsed = parsed.replace(old, new)
        source = pad(self._on_this_machine(parsed), example.line + example.parsed.line_offset)
        code = compile(source, example.path, "exec", flags, dont_inherit=True)
        awaited = eval(code, example.namespace)
        if code.co_flags & inspect.CO_COROUTINE:
            self._runner.run(awaited)

    def _on_this_machine(self, source: str) -> str:
        def url(match: re.Match[str]) -> str:
            return self._groups[int(match[1])][int(match[2]) - 1].url

        return re.sub(r"\bredis://10\.0\.([01])\.([1-5])\b(?::6379)?", url, source)

    def _close(self) -> None:
        for value in list(self._document.namespace.values()):
            if isinstance(value, (BaseClient, Sharding)):
                self._runner.run(_closed(value))
            elif isinstance(value, RedlockCollector):
                with contextlib.suppress(KeyError):  # the page has done it
                    REGISTRY.unregister(value)


async def _closed(client: Any) -> None:
    closing = client.close()
    if inspect.isawaitable(closing):
        await closing
