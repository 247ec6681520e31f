"""The record of runs: which models have had their expected verdicts, each by itself."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

FILE = Path(__file__).with_name("proved.json")
#: A module of this package that another one imports.
IMPORT = re.compile(r"^from \.(\w+) import", re.MULTILINE)


def digest(model: str) -> str:
    """Of the code of a model, and of the modules that it imports, but for comments and blank lines."""
    total = hashlib.sha256()
    for name in sorted(_modules({model})):
        lines = (line.rstrip() for line in _code(name).splitlines())
        total.update("\n".join(line for line in lines if line and not line.lstrip().startswith("#")).encode())
    return total.hexdigest()


def record(cases: dict[str, int], digests: dict[str, str]) -> None:
    """All cases of these models, so many of each, have had their expected verdicts.

    ``digests``: of what ran, by model. What is recorded of other models stays.
    """
    proved = json.loads(FILE.read_text()) if FILE.exists() else {}
    proved |= {model: {"cases": cases[model], "digest": digests[model]} for model in cases}
    FILE.write_text(json.dumps(proved, indent=2, sort_keys=True) + "\n")


def is_proved(model: str, cases: int) -> bool:
    """Whether the model, which has so many cases now, is as it was when a run of all of them was recorded."""
    return bool(json.loads(FILE.read_text()).get(model) == {"cases": cases, "digest": digest(model)})


def _code(module: str) -> str:
    return FILE.with_name(f"{module}.py").read_text()


def _modules(names: set[str]) -> set[str]:
    """These modules and what they import of this package."""
    more = {name for module in names for name in IMPORT.findall(_code(module))} - names
    return _modules(names | more) if more else names
