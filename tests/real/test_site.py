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
SCHEMES = {"light": "default", "dark": "slate"}
#: What WCAG asks of ordinary text.
READABLE = 4.5
#: What people type, and the section that answers.
QUESTIONS = {
    "how many servers": "faq.html#how-many-servers-do-i-need-1-3-or-5-masters",
    "which deployment": "faq.html#which-deployment-should-i-choose",
    "my job takes 40 minutes": "faq.html#my-job-takes-40-minutes-how-long-must-the-lock-be",
    "GC pause": "faq.html#what-if-my-process-pauses-for-example-in-garbage-collection",
    "test my code": "faq.html#how-do-i-test-my-code-that-uses-locks",
    "migrate from redis-py": "faq.html#how-is-it-different-from-redis-pys-lock-and-how-do-i-migrate",
    "who holds it": "faq.html#who-holds-the-lock",
    "alerts": "telemetry.html#alerts-worth-having",
    "is redlock safe": "redlock-safety.html",
    "kleppmann": "redlock-safety.html#kleppmanns-critique",
    "redisson": "redlock-safety.html#redisson-deprecated-its-redlock",
    "logging": "logging.html",
    "gevent": "runtimes.html#gevent",
    "kubernetes": "changing-masters.html#in-kubernetes",
}
#: The same, where a page of its own and a question may answer: both are good.
EITHER = {
    "TLS ACL": ("faq.html#tls-certificates-users-how-do-i-connect", "deployments.html#tls-and-acl-users"),
    "rotate a password": ("faq.html#how-do-i-rotate-a-password", "deployments.html#rotate-a-password"),
    "replace a dead master": (
        "faq.html#how-do-i-replace-a-dead-master",
        "deployments.html#replace-a-dead-master",
    ),
}

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("zensical") is None, reason="zensical is missing: pip install -e '.[docs]'"
    ),
    pytest.mark.skipif(CHROMIUM is None, reason="no browser: apt-get install chromium"),
    pytest.mark.xdist_group("site"),
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


@pytest.fixture(scope="module")
def seen(site: Path) -> dict[tuple[str, int, str], dict[str, Any]]:
    """What a reader sees of each page, by page, width and scheme."""
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
    return {(page, width, scheme): one for page, width, scheme, one in found}


def test_no_page_scrolls_sideways(seen: dict[tuple[str, int, str], dict[str, Any]]) -> None:
    """Catches: a table, a picture or a word that is wider than a phone."""
    assert {key[0] for key in seen} >= {"index.html", "tutorial.html", "reference/client.html"}
    assert {key: one["sideways"] for key, one in seen.items() if one["sideways"] > 0} == {}


@pytest.mark.parametrize("width", [LAPTOP, PHONE])
@pytest.mark.parametrize("page", ["index.html", "tutorial.html"])
def test_code_of_the_first_pages_does_not_scroll(
    seen: dict[tuple[str, int, str], dict[str, Any]], page: str, width: int
) -> None:
    """Catches: a line of code that a reader of the tutorial has to scroll for."""
    assert seen[page, width, "default"]["code"] == []


def test_text_can_be_read(seen: dict[tuple[str, int, str], dict[str, Any]]) -> None:
    """Catches: grey on white, or dark blue on black."""
    assert {key: one["contrast"] for key, one in seen.items() if one["contrast"][0] < READABLE} == {}


def test_every_image_is_there(seen: dict[tuple[str, int, str], dict[str, Any]]) -> None:
    assert {key[0]: one["images"] for key, one in seen.items() if one["images"]} == {}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_images_follow_the_scheme_of_the_page(site: Path, tmp_path: Path, scheme: str) -> None:
    """Catches: a white slab on a dark page; text of a chart that has the colour of its page."""
    image = pytest.importorskip("PIL.Image", reason="Pillow reads the picture: pip install -e '.[docs]'")
    for svg in sorted(site.rglob("*.svg")):
        if "assets" in svg.parts:
            continue
        name = svg.relative_to(site).as_posix()
        back = "#fff" if scheme == "light" else "#1e2129"
        (site / "one.html").write_text(
            f'<html style="color-scheme: {scheme}; background: {back}"><body style="margin: 0">'
            f'<img src="{name}" style="width: 700px; display: block"></body></html>'
        )
        screenshot(site, "one.html", 700, 500, tmp_path / "one.png")
        with image.open(tmp_path / "one.png") as picture:
            levels = sorted(picture.convert("L").getdata())
        common = max(set(levels), key=levels.count)
        dark = common < 90
        assert dark == (scheme == "dark") or name == "images/top.svg", f"{name}: mostly {common} of 255"
        assert levels[-20] - levels[20] > 120, f"{name}: nothing stands out"
    (site / "one.html").unlink()


@pytest.fixture(scope="module")
def answers(site: Path) -> dict[str, str]:
    """The first result of the site's own search for each question."""
    script = f"{SCRIPT}\nreported(() => searched({json.dumps([*QUESTIONS, *EITHER])}));"
    found = report_of(site, script)
    assert "error" not in found, found["error"]
    return {question: url.partition("//")[2].partition("/")[2] for question, url in found.items()}


@pytest.mark.parametrize("question", [*QUESTIONS, *EITHER])
def test_the_first_result_answers(answers: dict[str, str], question: str) -> None:
    """Catches: a question that people type, and that finds nothing."""
    good = EITHER.get(question) or (QUESTIONS[question],)
    assert answers[question] in good
