"""deploy/: five masters that share nothing, and nothing that balances between them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.cases import cases
from support.inside import core_of

from redlock_fast import FastRedlock

DEPLOY = Path(__file__).parents[3] / "deploy"
COMPOSE = DEPLOY / "compose"
KUBERNETES = DEPLOY / "kubernetes"
NAMES = [f"redlock-{number}" for number in range(1, 6)]
#: How often a client tries to reconnect, with time to connect: seconds.
RECONNECT = 5.0


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def bytes_of(text: str) -> int:
    number, unit = re.fullmatch(r"(\d+)(m|mb|Mi)", text).groups()  # type: ignore[union-attr]
    assert unit
    return int(number) << 20


def setting(name: str) -> str:
    (found,) = re.findall(rf"^{name} (.*)$", (DEPLOY / "valkey" / "valkey.conf").read_text(), re.MULTILINE)
    return str(found)


#: Those of the chart are templates: test_chart.py renders them.
FILES = sorted(path for path in DEPLOY.rglob("*.yaml") if path.parent.name != "templates")


@cases("path", FILES, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_it_is_yaml(path: Path) -> None:
    assert isinstance(load(path), dict)


# --- compose ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    found: dict[str, Any] = load(COMPOSE / "compose.yaml")
    return found


def test_compose_has_five_masters_that_share_nothing(compose: dict[str, Any]) -> None:
    masters = {
        name: one
        for name, one in compose["services"].items()
        if "valkey" in one["image" if "image" in one else "build"]
    }
    assert sorted(masters) == NAMES
    own = ("volumes", "ports")
    assert all(
        one["volumes"] == [f"{name}:/data"] and name in compose["volumes"] for name, one in masters.items()
    )
    assert len({str(one["ports"]) for one in masters.values()}) == 5
    same = [{key: value for key, value in one.items() if key not in own} for one in masters.values()]
    assert same == [same[0]] * 5
    assert not any("profiles" in one for one in masters.values())


def test_a_master_has_more_memory_than_it_may_use(compose: dict[str, Any]) -> None:
    used = bytes_of(setting("maxmemory"))
    for one in (compose["services"][name] for name in NAMES):
        assert bytes_of(one["mem_limit"]) == bytes_of(one["memswap_limit"]) >= 2 * used
        assert one["ulimits"]["nofile"] >= int(setting("maxclients")) + 32
    (container,) = stateful_set()["spec"]["template"]["spec"]["containers"]
    assert bytes_of(container["resources"]["limits"]["memory"]) >= 2 * used
    assert container["resources"]["requests"]["memory"] == container["resources"]["limits"]["memory"]


def test_what_compose_refers_to_is_there(compose: dict[str, Any]) -> None:
    for config in compose["configs"].values():
        assert (COMPOSE / config["file"]).is_file()
    named = [entry for one in compose["services"].values() for entry in one.get("configs", [])]
    assert {entry["source"] for entry in named} == set(compose["configs"])
    service = compose["services"]["service"]
    context = COMPOSE / service["build"]["context"]
    assert (context / service["build"]["dockerfile"]).is_file()
    assert (context / "pyproject.toml").is_file()
    assert service["environment"]["REDLOCK_FAST_MASTERS"].split() == [f"redis://{name}" for name in NAMES]


def test_all_examples_have_the_same_settings(compose: dict[str, Any]) -> None:
    assert (
        COMPOSE / compose["configs"]["valkey.conf"]["file"]
    ).resolve() == DEPLOY / "valkey" / "valkey.conf"
    (generator,) = load(DEPLOY / "valkey" / "kustomization.yaml")["configMapGenerator"]
    assert generator["files"] == ["valkey.conf"]
    volumes = {one["name"]: one for one in stateful_set()["spec"]["template"]["spec"]["volumes"]}
    assert volumes["config"]["configMap"]["name"] == generator["name"]
    (container,) = stateful_set()["spec"]["template"]["spec"]["containers"]
    master = compose["services"]["redlock-1"]
    assert (container["image"], container["command"]) == (master["image"], master["command"])


# --- Kubernetes ---------------------------------------------------------------------------------------


def of_kind(kind: str) -> list[Any]:
    base = KUBERNETES / "base"
    files = [
        load(base / name) for name in load(base / "kustomization.yaml")["resources"] if name.endswith("yaml")
    ]
    return [one for one in files if one["kind"] == kind]


def stateful_set() -> Any:
    (found,) = of_kind("StatefulSet")
    return found


@cases("folder", ["base", "trial"])
def test_what_kustomize_needs_is_there(folder: str) -> None:
    for name in load(KUBERNETES / folder / "kustomization.yaml")["resources"]:
        path = KUBERNETES / folder / name
        assert (path / "kustomization.yaml" if path.is_dir() else path).is_file()


def test_the_trial_removes_what_is_there() -> None:
    (patch,) = load(KUBERNETES / "trial" / "kustomization.yaml")["patches"]
    assert patch["target"] == {"kind": "StatefulSet", "name": stateful_set()["metadata"]["name"]}
    for step in yaml.safe_load(patch["patch"]):
        assert step["op"] == "remove"
        place = stateful_set()
        for name in step["path"].strip("/").split("/"):
            place = place[name]


def test_nothing_balances_between_masters() -> None:
    (service,) = of_kind("Service")
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert stateful_set()["spec"]["serviceName"] == service["metadata"]["name"]


def test_five_masters_that_fail_one_at_a_time() -> None:
    spec = stateful_set()["spec"]
    pod = spec["template"]["spec"]
    assert spec["replicas"] == 5
    assert spec["updateStrategy"] == {"type": "RollingUpdate"}
    (claim,) = spec["volumeClaimTemplates"]
    (container,) = pod["containers"]
    assert {
        one["mountPath"] for one in container["volumeMounts"] if one["name"] == claim["metadata"]["name"]
    } == {setting("dir")}
    (apart,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (spread,) = pod["topologySpreadConstraints"]
    assert apart["topologyKey"] == "kubernetes.io/hostname"
    assert (spread["topologyKey"], spread["maxSkew"]) == ("topology.kubernetes.io/zone", 1)
    (budget,) = of_kind("PodDisruptionBudget")
    assert budget["spec"]["maxUnavailable"] == 1
    (network,) = of_kind("NetworkPolicy")
    labels = spec["template"]["metadata"]["labels"]
    for selected in (
        spec["selector"],
        apart["labelSelector"],
        spread["labelSelector"],
        budget["spec"]["selector"],
        network["spec"]["podSelector"],
        {"matchLabels": of_kind("Service")[0]["spec"]["selector"]},
    ):
        assert selected == {"matchLabels": labels}


def test_the_next_master_goes_when_the_last_has_its_vote_back() -> None:
    """Ready, which budgets count, comes after the restart guard; an update leaves time to reconnect, too."""
    with FastRedlock(["redis://127.0.0.1:1"]) as client:
        max_ttl = core_of(client).max_ttl
    (container,) = stateful_set()["spec"]["template"]["spec"]["containers"]
    assert container["readinessProbe"]["initialDelaySeconds"] >= max_ttl + RECONNECT
    assert stateful_set()["spec"]["minReadySeconds"] >= RECONNECT


def test_no_probe_ends_a_master_that_loads() -> None:
    (container,) = stateful_set()["spec"]["template"]["spec"]["containers"]
    assert container["startupProbe"]["exec"] == container["livenessProbe"]["exec"]
    for probe in (container["startupProbe"], container["livenessProbe"]):
        assert probe["periodSeconds"] * probe["failureThreshold"] >= 300


def test_a_master_has_no_privileges(compose: dict[str, Any]) -> None:
    pod = stateful_set()["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    for one in (compose["services"][name] for name in [*NAMES, "service"]):
        assert (one["read_only"], one["cap_drop"]) == (True, ["ALL"])
        assert one["security_opt"] == ["no-new-privileges:true"]
