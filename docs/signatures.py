"""What griffe changes in the reference: signatures have no placeholder, and names of pages become links."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import griffe

DOCS = Path(__file__).parent
PAGE = re.compile(r"\bdocs/(?P<path>[\w/-]+\.md)\b")


class WithoutUnknown(griffe.Extension):
    """Removes ``**unknown: Unpack[NoOptions]``, which accepts no argument."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        if "unknown" in func.parameters:
            del func.parameters["unknown"]


class LinkedPages(griffe.Extension):
    """A docstring says ``docs/kinds.md``, which is right in a terminal. In the reference it is a link."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = PAGE.sub(linked, obj.docstring.value)


def linked(found: re.Match[str]) -> str:
    """A link from a page of ``reference/``. FileNotFoundError where there is no such page."""
    title = (DOCS / found["path"]).read_text().partition("\n")[0].removeprefix("# ")
    return f"[{title}](../{found['path'].removesuffix('.md')}.html)"
