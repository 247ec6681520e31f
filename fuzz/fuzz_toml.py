"""The property ``toml`` under atheris."""

import sys

import atheris

with atheris.instrument_imports(include=["redlock_fast", "tomllib"]):
    import tomllib  # noqa: F401

    import properties

atheris.Setup(sys.argv, properties.toml)
atheris.Fuzz()
