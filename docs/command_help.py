"""A Markdown extension: pages show what the package itself says, its version and the help of its commands.

``<!-- version -->`` becomes a sentence with the version, and ``<!-- help: exec -->`` becomes what
``redlock-fast exec --help`` prints. So neither can be out of date.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
from typing import Any

from markdown import Extension, Markdown
from markdown.preprocessors import Preprocessor

import redlock_fast
from redlock_fast.cli.arguments import parse

VERSION = "<!-- version -->"
HELP = re.compile(r"^<!-- help: (?P<command>\w*) ?-->$", re.MULTILINE)
#: Before superfences (25), which makes code of the fence, and before comments are taken for HTML (20).
PRIORITY = 40


class FromThePackage(Preprocessor):
    def run(self, lines: list[str]) -> list[str]:
        text = "\n".join(lines).replace(VERSION, f"These pages describe version {redlock_fast.__version__}.")
        return HELP.sub(lambda found: f"```text\n{help_of(found['command'])}```", text).split("\n")


class CommandHelp(Extension):
    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 - the name that Markdown calls
        md.preprocessors.register(FromThePackage(md), "command_help", PRIORITY)


def makeExtension(**options: Any) -> Extension:  # noqa: N802
    return CommandHelp(**options)


def help_of(command: str) -> str:
    os.environ.update(COLUMNS="100", NO_COLOR="1")
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        parse([*command.split(), "--help"])
    return said.getvalue()
