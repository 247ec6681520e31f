"""The targets of fuzz/: each is built, and its property holds for its seeds and for what hypothesis makes."""

from __future__ import annotations

import importlib.util
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.thorough import MORE

FUZZ = Path(__file__).resolve().parents[3] / "fuzz"
PARTS = [b"+OK\r\n", b"*2\r\n", b"$3\r\nabc\r\n", b"|1\r\n", b">1\r\n", b":", b"\r\n"]


def module(name: str) -> ModuleType:
    """Of a folder that is no package: OSS-Fuzz wants its files as they are."""
    spec = importlib.util.spec_from_file_location(f"fuzz_{name}", FUZZ / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    there = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(there)
    return there


guided, properties = module("guided"), module("properties")
by_name: dict[str, Callable[[bytes], None]] = {n: getattr(properties, n) for n in guided.PYTHON_TARGETS}


def seeds(target: str) -> list[Path]:
    found = sorted((FUZZ / "corpus" / target).iterdir())
    assert found
    return found


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if lacking := guided.missing("hub"):
        pytest.skip(f"{lacking} is missing")
    out: Path = tmp_path_factory.mktemp("targets")
    guided.build(out, guided.FLAGS.replace("-O1 -g", "-O0"))  # a run of a moment: a third of the time
    return out


@pytest.mark.skipif(not MORE, reason="to build the targets takes five seconds: make coverage has this test")
@pytest.mark.parametrize("target", guided.C_TARGETS)
def test_a_target_of_c_passes_its_seeds(target: str, programs: Path) -> None:
    words = [*guided.command(target, programs), *map(str, seeds(target))]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Executed") == len(seeds(target))


@pytest.mark.parametrize("target", guided.PYTHON_TARGETS)
def test_a_target_of_python_passes_its_seeds(target: str) -> None:
    if lacking := guided.missing(target):
        pytest.skip(f"{lacking} is missing")
    words = [*guided.command(target, FUZZ), *map(str, seeds(target))]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Executed") == len(seeds(target))


@pytest.mark.parametrize("target", guided.PYTHON_TARGETS)
def test_the_properties_hold_for_the_seeds(target: str) -> None:
    for path in seeds(target):
        by_name[target](path.read_bytes())


@given(st.one_of(st.binary(), st.lists(st.sampled_from(PARTS)).map(b"".join)))
def test_any_bytes_are_replies_or_a_protocol_error(data: bytes) -> None:
    properties.resp(data)


@given(st.integers(0, 255), st.text("@:/?#&=,[]%\0 ax1\udc80"))
def test_any_text_is_a_master_or_a_config_error(which: int, text: str) -> None:
    properties.url(bytes([which]) + text.encode(errors="surrogateescape"))


@settings(max_examples=50)
@given(st.sampled_from(["ttl", "wait", "retry", "key_prefix", "x"]), st.text("[{'\"=1e.-}]\n\0"))
def test_any_file_makes_a_client_or_a_config_error(option: str, text: str) -> None:
    properties.toml(f"[redlock-fast]\n{option} = {text}".encode())


def test_what_does_not_hold_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that quotes a URL, and a parser that looks again at what it had looked at."""
    monkeypatch.setattr(properties, "redacted", str)
    with pytest.raises(AssertionError, match="shows a password"):
        properties.url(b"\0")
    resume = properties.resume
    monkeypatch.setattr(properties, "resume", lambda data, scan: resume(data, properties.NEW))
    with pytest.raises(AssertionError, match="again and again"):
        properties.resp(b"+" + b"x" * 100 + b"\r\n")


def test_a_machine_without_the_fuzzer_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(guided.shutil, "which", lambda _: None)
    assert guided.main("hub") == 2
    assert "hub needs clang" in capsys.readouterr().out
