"""The property ``resp`` under atheris."""

import sys

import atheris

with atheris.instrument_imports(include=["redlock_fast"]):
    import properties

atheris.Setup(sys.argv, properties.resp)
atheris.Fuzz()
