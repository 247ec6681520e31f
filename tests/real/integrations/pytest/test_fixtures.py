"""The fixtures, in runs of pytest as a user starts them, with the entry point that is installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest_plugins = ("pytester",)

#: Plugins that these runs have no use for. They take longer to start than the tests.
WITHOUT = [f"-pno:{name}" for name in ("benchmark", "hypothesispytest", "pytest_cov", "timeout", "valkey")]

USES = """
import asyncio
import pytest
from redlock_fast import FastRedlock

@pytest.fixture(scope="session")
def redlock_options():
    return {"key_prefix": "app:"}

@pytest.fixture(scope="session")
def application(redlock_masters):
    with FastRedlock(redlock_masters.urls, node_timeout=5.0, connect_timeout=20.0) as client:
        yield client

@pytest.mark.parametrize("turn", range(4))
def test_threads(redlock, redlock_masters, turn):
    assert len(redlock_masters) == 3
    assert [master.ask("EXISTS app:r") for master in redlock_masters] == [":0"] * 3
    assert all(master.state == "connected" for master in redlock.health())
    redlock_masters.kill(turn % 3)
    assert redlock.acquire("r", 60)

def test_an_application_of_the_session(application):
    assert application.acquire("r")

def test_it_again(application):
    assert application.acquire("r")

def test_a_loop_of_its_own(aredlock):
    async def main():
        assert await aredlock.acquire("r")
    asyncio.run(main())

def test_unused(aredlock):
    pass

def test_masters_in_memory(redlock_memory):
    with FastRedlock(redlock_memory.urls, clock=redlock_memory.clock) as client:
        redlock_memory[0].stop()
        lock = client.acquire("r")
        redlock_memory.advance(lock.ttl)
        assert len(redlock_memory) == 3 and not lock.locked()
"""
ASYNCIO = """
@pytest.mark.asyncio
async def test_pytest_asyncio(aredlock, redlock_masters):
    redlock_masters.stop(0)
    async with aredlock.lock("r", auto_extend=True):
        assert await aredlock.locked("r")
    assert await aredlock.lock("held", auto_extend=True).acquire()
"""
ANYIO = """
@pytest.fixture
def anyio_backend():
    return "asyncio"

@pytest.mark.anyio
async def test_anyio(aredlock, redlock_masters):
    redlock_masters.partition(0)
    async with aredlock.lock("r"):
        assert aredlock.health()[0].state == "connecting", "no acquire waits for it"
        assert await aredlock.locked("r")
"""
WRONG = """
import pytest

async def test_no_plugin(aredlock):
    pass

@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_trio(aredlock, anyio_backend):
    pass
"""


def test_the_fixtures(pytester: pytest.Pytester) -> None:
    """Each of two workers has masters of its own."""
    source, passed = USES + ANYIO, 10
    try:
        import pytest_asyncio  # noqa: F401
    except ImportError:
        pass
    else:
        source, passed = source + ASYNCIO, 11
    pytester.makepyfile(source)
    pytester.makeini(
        "[pytest]\nredlock_masters = 5\nredlock_engine = python\n"
        "filterwarnings =\n    error\n    ignore:.*asyncio_default_fixture_loop_scope\n"
    )
    done = pytester.runpytest_subprocess("-n", "2", "--redlock-masters", "3", "-pno:cacheprovider", *WITHOUT)
    done.assert_outcomes(passed=passed)


def test_wrong_uses_are_explained(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(WRONG)
    done = pytester.runpytest_inprocess("-p", "no:asyncio", "--redlock-masters", "1")
    done.assert_outcomes(errors=2)
    done.stdout.fnmatch_lines(["*no plugin runs this async test. Install pytest-asyncio*"])
    done.stdout.fnmatch_lines(["*aredlock needs asyncio, not trio*"])


@pytest.mark.parametrize(
    ("option", "complaint"),
    [
        (
            "--redlock-masters=x",
            "--redlock-masters (redlock_masters in the ini file) must be an integer from",
        ),
        ("--redlock-masters=0", "must be an integer from 1 to 63, not 0"),
        ("--redlock-masters=64", "must be an integer from 1 to 63, not 64"),
        ("--redlock-server=/nowhere", "is not an executable file"),
        ("--redlock-engine=fast", "engine must be"),
    ],
)
def test_wrong_options(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, option: str, complaint: str
) -> None:
    pytester.makepyfile("def test(redlock): pass")
    done = pytester.runpytest_inprocess(option, "-p", "no:asyncio", "-p", "no:xdist")
    done.assert_outcomes(errors=1)
    assert complaint in done.stdout.str()


def test_a_run_without_the_fixtures_imports_nothing(pytester: pytest.Pytester) -> None:
    """Catches: a package that coverage does not see, and a slow start of every run on the machine."""
    pytester.makepyfile(
        "import sys\n"
        "def test(pytestconfig):\n"
        "    assert pytestconfig.pluginmanager.has_plugin('redlock_fast')\n"
        "    assert not [name for name in sys.modules if name.split('.')[0] in ('redlock_fast', 'redis')]\n"
    )
    others = "-pno:anyio", "-pno:asyncio", "-pno:xdist"
    pytester.runpytest_subprocess(*WITHOUT, *others).assert_outcomes(passed=1)
    script = (
        "import sys, pytest; old = {*sys.modules}; import pytest_redlock_fast; print({*sys.modules} - old)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "{'pytest_redlock_fast'}\n"
