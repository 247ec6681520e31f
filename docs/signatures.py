"""What griffe leaves out of the signatures of the reference."""

from __future__ import annotations

from typing import Any

import griffe


class WithoutUnknown(griffe.Extension):
    """Removes ``**unknown: Unpack[NoOptions]``, which accepts no argument."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        if "unknown" in func.parameters:
            del func.parameters["unknown"]
