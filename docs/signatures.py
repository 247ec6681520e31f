"""What griffe changes in the reference: signatures have no placeholder, and names of pages become links."""

from __future__ import annotations

import copy
import dataclasses
import re
from pathlib import Path
from typing import Any

import griffe

DOCS = Path(__file__).parent
PAGE = re.compile(r"\bdocs/(?P<path>[\w/-]+\.md)\b")


class WithoutUnknown(griffe.Extension):
    """Removes ``**unknown: Unpack[NoOptions]`` and its like, which accepts no argument."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        for name in ("unknown", "more"):
            if name in func.parameters:
                del func.parameters[name]


class MakersOfAClient(griffe.Extension):
    """Shows the methods of ``LockFactory`` as those of each client, which makes locks of its own classes.

    The classes stand in the base of the client, ``LockFactory[Lock, RLock, ...]``, in place of the variables.
    """

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        factory = pkg["locks.factory.LockFactory"]
        variables = [str(one) for one in factory.bases[1].slice.elements]
        for client in (pkg["threads.client.FastRedlock"], pkg["aio.client.AsyncFastRedlock"]):
            classes = dict(zip(variables, client.bases[0].slice.elements, strict=True))
            makers = {name: one for name, one in factory.members.items() if not name.startswith("_")}
            own = {**client.members}
            client.members.clear()  # those that it makes locks with go before those that wait
            for name, method in makers.items():
                client.set_member(name, own.pop(name, None) or of_client(method, classes))
                client[name].docstring = method.docstring
            client.members.update(own)


def of_client(method: griffe.Function, classes: dict[str, griffe.Expr]) -> griffe.Function:
    """``method`` with ``classes`` in place of the variables of its types."""
    own = copy.copy(method)
    own.returns = replaced(method.returns, classes)
    own.parameters = griffe.Parameters(*map(copy.copy, method.parameters))
    for parameter in own.parameters:
        parameter.annotation = replaced(parameter.annotation, classes)
    return own


def replaced(annotation: Any, classes: dict[str, griffe.Expr]) -> Any:
    """``annotation`` with ``classes`` in place of the variables."""
    if isinstance(annotation, griffe.ExprName):
        return classes.get(annotation.name, annotation)
    if isinstance(annotation, list | tuple):
        return type(annotation)(replaced(one, classes) for one in annotation)
    if not isinstance(annotation, griffe.Expr):
        return annotation
    own = copy.copy(annotation)
    for field in dataclasses.fields(own):
        setattr(own, field.name, replaced(getattr(own, field.name), classes))
    return own


class LinkedPages(griffe.Extension):
    """A docstring says ``docs/kinds.md``, which is right in a terminal. In the reference it is a link."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = PAGE.sub(linked, obj.docstring.value)


def linked(found: re.Match[str]) -> str:
    """A link from a page of ``reference/``. FileNotFoundError where there is no such page."""
    title = (DOCS / found["path"]).read_text().partition("\n")[0].removeprefix("# ")
    return f"[{title}](../{found['path'].removesuffix('.md')}.html)"
