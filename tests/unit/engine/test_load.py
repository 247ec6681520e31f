"""The choice of an engine: what was asked for, or a reason why not."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import threading
from types import ModuleType
from typing import ClassVar

import pytest

import redlock_fast
from redlock_fast.engine import load
from redlock_fast.engine.contract import Engine
from redlock_fast.errors import ConfigError

NATIVE = "redlock_fast.engine._native"


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> object:
    """What stands for the class of a compiled engine."""
    module = ModuleType(NATIVE)
    engine = type("NativeEngine", (), {})
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


# --- greenlets -----------------------------------------------------------------------------------


class Patch:
    """``patch(library, *modules)``: stands for what the library replaces in these modules."""

    PLACES: ClassVar = {
        "socket": (socket, "socket"),
        "select": (select, "select"),
        "threading": (threading, "get_ident"),
    }

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def __call__(self, library: str, *modules: str) -> None:
        for name in modules or self.PLACES:
            module, attribute = self.PLACES[name]
            kind = type(attribute, (), {"__module__": f"{library}.{name}"})
            self._monkeypatch.setattr(module, attribute, kind)


@pytest.fixture
def patch(monkeypatch: pytest.MonkeyPatch) -> Patch:
    return Patch(monkeypatch)


def test_auto_cooperates_with_greenlets(patch: Patch, built: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after the import, and again the native engine where nothing is patched."""
    assert load() is built
    assert redlock_fast.ENGINE == "native"
    patch("gevent")
    assert load() is load("python") is pure()
    monkeypatch.setenv("REDLOCK_FAST_ENGINE", "auto")
    assert load() is pure()
    assert redlock_fast.ENGINE == "python"


@pytest.mark.parametrize("library", ["gevent", "eventlet"])
@pytest.mark.parametrize("modules", [(), ("socket",), ("threading",)])
def test_native_beside_greenlets_is_refused(
    patch: Patch, built: object, monkeypatch: pytest.MonkeyPatch, library: str, modules: tuple[str, ...]
) -> None:
    patch(library, *modules)
    with pytest.raises(ConfigError, match=rf"^engine must not be 'native' beside {library}: a greenlet"):
        load("native")
    monkeypatch.setenv("REDLOCK_FAST_ENGINE", "native")
    with pytest.raises(ConfigError, match=r"^REDLOCK_FAST_ENGINE must not be 'native'"):
        load()


@pytest.mark.parametrize(
    "modules", [("socket",), ("socket", "select"), ("threading",), ("select", "threading")]
)
@pytest.mark.parametrize("engine", ["auto", "python"])
def test_half_a_patch_is_refused(patch: Patch, built: object, modules: tuple[str, ...], engine: str) -> None:
    """With greenlets that share the locks of threads, two of them would lead the engine."""
    patch("gevent", *modules)
    with pytest.raises(ConfigError, match=r"only a part .*monkey\.patch_all\(\)"):
        load(engine)


@pytest.mark.parametrize("engine", ["auto", "python"])
def test_eventlet_is_refused(patch: Patch, built: object, engine: str) -> None:
    patch("eventlet")
    with pytest.raises(ConfigError, match=r"eventlet .* use gevent, asyncio or threads"):
        load(engine)


def test_patch_after_the_client_is_refused(patch: Patch, built: object) -> None:
    """Its condition is one of threads: a greenlet that waits for it would stop all others."""
    client = redlock_fast.FastRedlock(["redis://127.0.0.1:1"], engine="python")
    patch("gevent")
    with pytest.raises(ConfigError, match="before the first client"):
        client.acquire("a lock", blocking=False)
    client.close()


def test_an_import_with_a_wrong_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error comes where a client is made, and names the variable."""
    code = "import redlock_fast as r; print(r.FastRedlock.__name__, r.Lock.__name__, r.__version__)"
    environment = {**os.environ, "REDLOCK_FAST_ENGINE": "fast"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    monkeypatch.setenv("REDLOCK_FAST_ENGINE", "fast")
    for use in (lambda: redlock_fast.FastRedlock(["redis://a"]), lambda: redlock_fast.ENGINE):
        with pytest.raises(ConfigError, match=r"^REDLOCK_FAST_ENGINE must be 'auto', 'native' or 'python'"):
            use()
