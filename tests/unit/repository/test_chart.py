"""deploy/helm: a chart that renders the objects of deploy/kubernetes, by helm where it is installed."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

DEPLOY = Path(__file__).parents[3] / "deploy"
CHART = DEPLOY / "helm" / "redlock-fast-masters"
BASE = DEPLOY / "kubernetes" / "base"

Objects = dict[str, Any]


def value(values: Any, dotted: str) -> Any:
    for name in dotted.split("."):
        values = values[name]
    return values


def expression(values: Any, text: str) -> str:
    """What helm writes for one of the expressions that the templates are limited to."""
    found = re.fullmatch(r"\.Values\.([\w.]+)", text)
    if found:
        return str(value(values, found[1]))
    found = re.fullmatch(r"add \.Values\.([\w.]+) (\d+)", text)
    if found:
        return str(int(value(values, found[1])) + int(found[2]))
    found = re.fullmatch(r'\.Files\.Get "([\w./]+)" \| (sha256sum|indent (\d+))', text)
    assert found, f"test_chart.py does not know {text!r}"
    content = (CHART / found[1]).read_text()
    if found[3] is None:
        return hashlib.sha256(content.encode()).hexdigest()
    return "\n".join(int(found[3]) * " " + line for line in content.split("\n"))


def render(values: Any) -> Objects:
    """The objects of the chart, without helm."""
    objects = {}
    for path in sorted((CHART / "templates").glob("*.yaml")):
        lines, open_blocks = [], []
        for line in path.read_text().splitlines():
            block = re.fullmatch(r"\s*\{\{- (?:(if|with) \.Values\.([\w.]+)|(end)|toYaml .*) \}\}", line)
            if block and block[1]:
                open_blocks.append(bool(value(values, block[2])))
            elif block and block[3]:
                open_blocks.pop()
            elif all(open_blocks):
                lines.append(re.sub(r"\{\{ (.*?) \}\}", lambda one: expression(values, one[1]), line))
        assert not open_blocks, path
        text = yaml.safe_load("\n".join(lines))
        if text:
            objects[text["kind"]] = text
    return objects


def by_helm(*options: str) -> Objects:
    helm = shutil.which("helm")
    if helm is None:
        pytest.skip("helm is missing: .ci/tools FOLDER downloads it; another test renders without it")
    subprocess.run([helm, "lint", "--strict", CHART, *options], check=True, capture_output=True)
    page = subprocess.check_output([helm, "template", "redlock", CHART, *options], text=True)
    return {one["kind"]: one for one in yaml.safe_load_all(page)}


def values() -> Any:
    return yaml.safe_load((CHART / "values.yaml").read_text())


def alone() -> Objects:
    return render({**values(), "prometheusRule": {"enabled": True, "labels": {}}})


Render = Callable[[], Objects]
each_way = pytest.mark.parametrize(
    "made", [alone, lambda: by_helm("--set", "prometheusRule.enabled=true")], ids=["alone", "helm"]
)


@each_way
def test_it_is_what_kustomize_makes(made: Render) -> None:
    objects = made()
    names = yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"]
    wanted = [yaml.safe_load((BASE / name).read_text()) for name in names if name.endswith("yaml")]
    annotations = objects["StatefulSet"]["spec"]["template"]["metadata"].pop("annotations")
    config = objects.pop("ConfigMap")
    rule = objects.pop("PrometheusRule")
    assert objects == {one["kind"]: one for one in wanted}
    text = (DEPLOY / "valkey" / "valkey.conf").read_text()
    assert config["data"]["valkey.conf"].strip() == text.strip()
    assert config["metadata"]["name"] == "redlock-config", "as the StatefulSet mounts it"
    assert annotations == {"checksum/config": hashlib.sha256(text.encode()).hexdigest()}
    assert rule["spec"] == yaml.safe_load((DEPLOY / "prometheus" / "rules.yaml").read_text())


@pytest.mark.parametrize(
    ("copy", "source"),
    [
        ("valkey.conf", DEPLOY / "valkey" / "valkey.conf"),
        ("rules.yaml", DEPLOY / "prometheus" / "rules.yaml"),
    ],
)
def test_files_are_copies(copy: str, source: Path) -> None:
    assert (CHART / "files" / copy).read_text() == source.read_text()


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ((), {}),
        (
            (
                "--set",
                "maxTtl=300,masters=3,spread=false,networkPolicy=false,storageClassName=fast,name=locks",
            ),
            {
                "maxTtl": 300, "masters": 3, "spread": False, "networkPolicy": False,
                "storageClassName": "fast", "name": "locks",
            },
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("way", ["alone", "helm"])
def test_values(way: str, options: tuple[str, ...], settings: dict[str, Any]) -> None:
    chosen = {**values(), **settings}
    objects = by_helm(*options) if way == "helm" else render(chosen)
    spec = objects["StatefulSet"]["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    (claim,) = spec["volumeClaimTemplates"]
    assert "PrometheusRule" not in objects
    assert ("NetworkPolicy" in objects) is chosen["networkPolicy"]
    assert ("affinity" in spec["template"]["spec"]) is chosen["spread"]
    assert container["readinessProbe"]["initialDelaySeconds"] == chosen["maxTtl"] + 15
    assert spec["replicas"] == chosen["masters"]
    assert claim["spec"].get("storageClassName", "") == chosen["storageClassName"]
    for one in objects.values():
        assert one["metadata"]["name"].startswith(chosen["name"])
        assert one["metadata"]["labels"] == {"app.kubernetes.io/name": chosen["name"]}
    assert spec["serviceName"] == objects["Service"]["metadata"]["name"]


def test_an_even_number_of_masters_is_refused() -> None:
    schema = (CHART / "values.schema.json").read_text()
    assert set(yaml.safe_load(schema)["properties"]) == {*values(), "global"}
    with pytest.raises(subprocess.CalledProcessError):
        by_helm("--set", "masters=4")


def test_every_value_is_used() -> None:
    text = "".join(path.read_text() for path in (CHART / "templates").iterdir())
    assert [name for name in values() if f".Values.{name}" not in text] == []
