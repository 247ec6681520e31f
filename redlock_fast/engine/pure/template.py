"""Templates of commands: one ``%`` operation encodes a command with its arguments."""

from __future__ import annotations

from functools import lru_cache

from ...wire.commands import Command, Reply

#: The first bytes that a reply of this type can have, unless it is an error.
FIRST_BYTES: dict[int, bytes] = {Reply.STATUS: b"+$_", Reply.INTEGER: b":"}


class Template:
    """A command that is compiled for encoding.

    ``args``: number of arguments that it needs. ``reply``: the first bytes that its reply can have, unless it
    is an error; empty if any reply will do. All other attributes: as of the Command.
    """

    __slots__ = (
        "args",
        "confirm_verb",
        "fallback",
        "leading_replies",
        "pattern",
        "replicas",
        "reply",
        "rollback_verb",
        "slots",
        "watch",
    )

    def __init__(self, command: Command) -> None:
        self.pattern: bytes = b"".join(map(_pattern, command.parts))
        self.slots: tuple[int, ...] = tuple(part for part in command.parts if isinstance(part, int))
        self.args: int = max((slot if slot >= 0 else ~slot for slot in self.slots), default=-1) + 1
        self.fallback: Template | None = Template(command.fallback) if command.fallback else None
        self.rollback_verb: int | None = command.rollback_verb
        self.confirm_verb: int | None = command.confirm_verb
        self.replicas: int = command.replicas
        self.leading_replies: int = command.leading_replies
        self.watch: int = command.watch
        self.reply: bytes = FIRST_BYTES.get(command.reply, b"")
        if self.watch:
            self.args = max(self.args, 1)  # the name to watch

    def encode(self, args: tuple[bytes, ...]) -> bytes:
        """The bytes of the command with these arguments."""
        words: list[int | bytes] = []
        for slot in self.slots:
            if slot >= 0:
                word = args[slot]
                words += len(word), word
            else:
                words.append(args[~slot])
        return self.pattern % tuple(words)


def _pattern(part: bytes | int) -> bytes:
    if isinstance(part, int):
        return b"$%d\r\n%b\r\n" if part >= 0 else b"%b"
    return part.replace(b"%", b"%%")


@lru_cache(maxsize=256)
def compiled(command: Command) -> Template:
    """The template of a command. Equal commands share one, so masters of a kind share what is encoded."""
    return Template(command)
