"""Systems on which the package does not run."""

from __future__ import annotations

import subprocess
import sys


def test_windows_is_refused_by_name() -> None:
    """Catches: an AttributeError for something that Windows lacks, from the depth of the import."""
    program = "import sys; sys.platform = 'win32'; import redlock_fast"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == (
        "ImportError: redlock-fast does not run on Windows; in WSL 2 it does (docs/deployments.md)"
    )
