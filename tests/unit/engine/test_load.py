"""The choice of an engine: what was asked for, or a reason why not."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from redlock_fast.engine import load
from redlock_fast.engine.contract import Engine
from redlock_fast.errors import ConfigError

NATIVE = "redlock_fast.engine._native"


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> object:
    """What stands for the class of a compiled engine."""
    module = ModuleType(NATIVE)
    engine = object()
    module.NativeEngine = engine  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, NATIVE, module)
    return engine


@pytest.fixture
def not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, NATIVE, None)


@pytest.fixture(autouse=True)
def no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REDLOCK_FAST_ENGINE", raising=False)


def pure() -> type[Engine]:
    from redlock_fast.engine.pure.engine import PureEngine

    return PureEngine


def test_native_where_it_is_built(built: object) -> None:
    assert load() is load("auto") is load("native") is built


def test_python_is_always_there(built: object) -> None:
    assert load("python") is pure()


@pytest.mark.usefixtures("not_built")
def test_auto_falls_back_where_nothing_is_built() -> None:
    assert load() is pure()


@pytest.mark.usefixtures("not_built")
def test_native_that_is_not_built_is_an_error() -> None:
    with pytest.raises(ConfigError, match="not built"):
        load("native")


def test_native_that_does_not_load_is_never_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, NATIVE, ModuleType(NATIVE))
    for name in ("auto", "native"):
        with pytest.raises(ImportError):
            load(name)


def test_native_that_misses_something_is_never_passed_over(
    monkeypatch: pytest.MonkeyPatch, not_built: None
) -> None:
    class Broken:
        def find_spec(self, name: str, *_: object) -> None:
            if name == NATIVE:
                raise ModuleNotFoundError("No module named 'elsewhere'", name="elsewhere")

    monkeypatch.delitem(sys.modules, NATIVE)
    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    with pytest.raises(ModuleNotFoundError, match="elsewhere"):
        load()


def test_variable_decides_for_auto_only(monkeypatch: pytest.MonkeyPatch, built: object) -> None:
    monkeypatch.setenv("REDLOCK_FAST_ENGINE", "python")
    assert load("auto") is pure()
    assert load("native") is built
    monkeypatch.setenv("REDLOCK_FAST_ENGINE", "native")
    assert load("python") is pure()


@pytest.mark.parametrize("name", ["", "c", "Native", "pure"])
def test_unknown_names_are_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    with pytest.raises(ConfigError, match="must be"):
        load(name)
    monkeypatch.setenv("REDLOCK_FAST_ENGINE", name)
    with pytest.raises(ConfigError, match="must be"):
        load()
