"""What mkdocs does besides: names of pages in docstrings become links, and commands tell their options."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
from typing import Any

from mkdocs.utils import get_relative_url

import redlock_fast
from redlock_fast.cli.arguments import parse

#: A warning fails the strict build.
logger = logging.getLogger("mkdocs.hooks")

NAME = re.compile(r"(?:<code>)?\bdocs/(?P<path>[\w/-]+\.md)\b(?:</code>)?")
VERSION = "<!-- version -->"
HELP = re.compile(r"^<!-- help: (?P<command>\w*) ?-->$", re.MULTILINE)


def on_page_content(html: str, *, page: Any, config: Any, files: Any) -> str:
    """Docstrings and the changelog say `docs/kinds.md`, which is right in a terminal; here it is a link."""

    def link(match: re.Match[str]) -> str:
        file = files.get_file_from_path(match["path"])
        if file is None:
            logger.warning("%s names docs/%s, which is not there", page.file.src_path, match["path"])
            return match[0]
        return f'<a href="{get_relative_url(file.url, page.url)}">{file.page.title}</a>'

    return NAME.sub(link, html)


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """In place of `<!-- help: exec -->`: what `redlock-fast exec --help` says. The version likewise."""
    markdown = markdown.replace(VERSION, f"These pages describe version {redlock_fast.__version__}.")
    return HELP.sub(lambda match: f"```text\n{help_of(match['command'])}```", markdown)


def help_of(command: str) -> str:
    os.environ.update(COLUMNS="100", NO_COLOR="1")
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        parse([*command.split(), "--help"])
    return said.getvalue()
