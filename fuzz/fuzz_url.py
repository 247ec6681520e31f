"""The property ``url`` under atheris."""

import sys

import atheris

with atheris.instrument_imports(include=["redlock_fast", "redis.connection"]):
    import properties
    import redis.connection  # noqa: F401

atheris.Setup(sys.argv, properties.url)
atheris.Fuzz()
