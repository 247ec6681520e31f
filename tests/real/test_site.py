"""The site as a reader sees it, in a real browser: on a desk and on a phone, by day and by night."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.browser import CHROMIUM, report_of, screenshot
from support.doc_pages import ROOT

SCRIPT = (Path(__file__).parents[1] / "support" / "site.js").read_text()
DESK, LAPTOP, PHONE = 1400, 1280, 390
SCHEMES = ("light", "dark")
#: What WCAG asks of ordinary text.
READABLE = 4.5
#: What people type, and the sections that answer.
QUESTIONS = {
    "how many servers": ["faq.html#how-many-servers-do-i-need-1-3-or-5-masters"],
    "which deployment": ["faq.html#which-deployment-should-i-choose"],
    "my job takes 40 minutes": ["faq.html#my-job-takes-40-minutes-how-long-must-the-lock-be"],
    "GC pause": ["faq.html#what-if-my-process-pauses-for-example-in-garbage-collection"],
    "test my code": ["faq.html#how-do-i-test-my-code-that-uses-locks"],
    "migrate from redis-py": ["faq.html#how-is-it-different-from-redis-pys-lock-and-how-do-i-migrate"],
    "who holds it": ["faq.html#who-holds-the-lock"],
    "alerts": ["telemetry.html#alerts-worth-having"],
    "TLS": ["deployments.html#tls-and-acl-users"],
    "password": ["deployments.html#rotate-a-password"],
    "TLS ACL": ["deployments.html#tls-and-acl-users"],
    "TLS and ACL users": ["deployments.html#tls-and-acl-users"],
    "rotate a password": ["deployments.html#rotate-a-password"],
    "rotating passwords": ["deployments.html#rotate-a-password"],
    "replace a dead master": ["deployments.html#replace-a-dead-master"],
    "dead master": ["deployments.html#replace-a-dead-master"],
    "ElastiCache": ["deployments.html#amazon-elasticache-and-memorydb"],
    "MemoryDB": ["deployments.html#amazon-elasticache-and-memorydb"],
    "Azure": ["deployments.html#azure-managed-redis"],
    "Memorystore": ["deployments.html#google-memorystore"],
    "Redis Cloud": ["deployments.html#redis-cloud"],
    "Upstash": ["deployments.html#upstash"],
    "KeyDB": ["deployments.html#dragonfly-keydb-garnet"],
    "Windows": ["deployments.html#windows"],
    "macOS": ["deployments.html#macos"],
    "is redlock safe": ["redlock-safety.html"],
    "kleppmann": ["redlock-safety.html#kleppmanns-critique"],
    "redisson": ["redlock-safety.html#redisson-deprecated-its-redlock"],
    "logging": ["logging.html"],
    "gevent": ["runtimes.html#gevent"],
    "redis cluster": ["cluster.html", "faq.html#does-it-work-with-redis-cluster"],
    "kubernetes": ["changing-masters.html#in-kubernetes"],
}

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("zensical") is None, reason="zensical is missing: pip install -e '.[docs]'"
    ),
    pytest.mark.skipif(CHROMIUM is None, reason="no browser: apt-get install chromium"),
    pytest.mark.timeout(900),  # the browser has little of a busy machine
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site, from a copy: a test writes nothing into the tree."""
    folder = tmp_path_factory.mktemp("documents")
    shutil.copytree(ROOT / "docs", folder / "docs")
    for name in ("mkdocs.yml", "CHANGELOG.md"):
        shutil.copy(ROOT / name, folder / name)
    (folder / "redlock_fast").symlink_to(ROOT / "redlock_fast")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(["docs", str(folder)])}
    built = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return folder / "site"


def test_pages_can_be_read(site: Path) -> None:
    """On a desk and on a phone, by day and by night.

    Catches: a table, a picture or a word that is wider than a phone; a line of code in the first pages for
    which a reader has to scroll; grey on white, or dark blue on black; a picture that is not there.
    """
    pages = sorted(page.relative_to(site).as_posix() for page in site.rglob("*.html"))
    found = report_of(
        site,
        f"""{SCRIPT}
        reported(async () => {{
            const found = [];
            for (const page of {json.dumps(pages)}) {{
                const frame = await opened("/" + page);
                for (const width of [{DESK}, {LAPTOP}, {PHONE}])
                    for (const scheme of ["default", "slate"]) {{
                        frame.style.width = `${{width}}px`;
                        choose(frame, scheme);
                        found.push([page, width, scheme, seen(frame)]);
                    }}
            }}
            return found;
        }});""",
    )
    assert isinstance(found, list), found
    assert len(found) == 6 * len(pages) > 200
    wrong: dict[str, list[Any]] = {"sideways": [], "code": [], "contrast": [], "images": []}
    for page, width, scheme, one in found:
        where = (page, width, scheme)
        if one["sideways"] > 0:
            wrong["sideways"].append((where, one["sideways"]))
        if one["code"] and page in ("index.html", "tutorial.html") and width < DESK:
            wrong["code"].append((where, one["code"]))
        if one["contrast"][0] < READABLE:
            wrong["contrast"].append((where, one["contrast"]))
        if one["images"]:
            wrong["images"].append((where, one["images"]))
    assert wrong == {"sideways": [], "code": [], "contrast": [], "images": []}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_images_follow_the_scheme_of_the_page(site: Path, tmp_path: Path, scheme: str) -> None:
    """Catches: a white slab on a dark page; text of a chart that has the colour of its page."""
    image = pytest.importorskip("PIL.Image", reason="Pillow reads the picture: pip install -e '.[docs]'")
    names = [svg.relative_to(site).as_posix() for svg in sorted(site.rglob("*.svg"))]
    names = [name for name in names if not name.startswith("assets/")]
    tags = [f'<img src="{name}" style="display: block; width: 600px; height: 400px">' for name in names]
    back = {"light": "#fff", "dark": "#1e2129"}[scheme]
    page = f'<html style="color-scheme: {scheme}; background: {back}"><body style="margin: 0">{"".join(tags)}'
    (site / "images.html").write_text(page)
    screenshot(site, "images.html", 600, 400 * len(names), tmp_path / "images.png")
    (site / "images.html").unlink()
    assert len(names) > 8
    with image.open(tmp_path / "images.png") as picture:
        for place, name in enumerate(names):
            levels = picture.crop((0, 400 * place, 600, 400 * (place + 1))).convert("L").histogram()
            common = levels.index(max(levels))
            against = sum(levels[200:] if scheme == "dark" else levels[:56]) / sum(levels)
            if name != "images/top.svg":  # a picture of a terminal, which is dark
                assert against < 0.25, f"{name}: {against:.0%} of it are as light or dark as the other scheme"
            drawn = sum(count for level, count in enumerate(levels) if abs(level - common) > 100)
            assert drawn > 200, f"{name}: nothing stands out"


def test_the_first_result_of_the_search_answers(site: Path) -> None:
    """Catches: a question that people type, and that finds nothing, or another page first."""
    script = f"{SCRIPT}\nreported(() => searched({json.dumps([*QUESTIONS])}));"
    found = report_of(site, script)
    assert "error" not in found, found["error"]
    answers = {question: url.partition("//")[2].partition("/")[2] for question, url in found.items()}
    assert answers.keys() == QUESTIONS.keys()
    assert {question: url for question, url in answers.items() if url not in QUESTIONS[question]} == {}
