"""What `deploy/` names exists: metrics, labels, settings, flags, files, and Kubernetes' own fields.

No image is pulled and no cluster asked: these are the mistakes that can be found without either.
"""

import argparse
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes_asyncio import client as kubernetes

from test_operating import documented
from thunder_router.cli import emulate, serve
from thunder_router.config import Settings, load
from thunder_router.workers.kubernetes import endpoint_urls

DEPLOY = Path(__file__).parent.parent / "deploy"
ROOT = DEPLOY.parent
BOARD = DEPLOY / "grafana/thunder-router.json"
RULES = DEPLOY / "prometheus/rules.yml"
KUBERNETES = [
    document
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    for document in yaml.safe_load_all(path.read_text())
]
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
KINDS = {
    "ServiceAccount": "V1ServiceAccount",
    "Role": "V1Role",
    "RoleBinding": "V1RoleBinding",
    "ConfigMap": "V1ConfigMap",
    "PersistentVolumeClaim": "V1PersistentVolumeClaim",
    "Deployment": "V1Deployment",
    "StatefulSet": "V1StatefulSet",
    "Service": "V1Service",
}


def kubernetes_object(kind: str, name: str) -> Any:
    (found,) = [d for d in KUBERNETES if (d["kind"], d["metadata"]["name"]) == (kind, name)]
    return found


def parsed(*argv: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    commands = parser.add_subparsers(dest="command")
    serve.add(commands)
    emulate.add(commands)
    return parser.parse_args(argv)


# --- metrics -----------------------------------------------------------------------------------


def expressions() -> list[str]:
    board = json.loads(BOARD.read_text())
    shown = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return shown + [rule["expr"] for group in groups for rule in group["rules"]]


def served_series() -> dict[str, set[str]]:
    """Every series that a scrape can give, with its labels."""
    series: dict[str, set[str]] = {}
    for name, labels in documented().items():
        series[name] = labels
        if name in (
            "thunder_held_seconds",
            "thunder_first_byte_seconds",
            "thunder_request_seconds",
        ):
            del series[name]
            series[f"{name}_bucket"] = labels | {"le"}
            series |= {f"{name}_sum": labels, f"{name}_count": labels}
    return series


def test_every_metric_that_is_named_anywhere_in_deploy_is_served() -> None:
    files = [path for path in DEPLOY.rglob("*") if path.is_file()]
    named = {
        name
        for path in files
        for name in re.findall(r"\bthunder_[a-z_]+\b", path.read_text())
        if name not in ("thunder_router",)
    }
    assert len(named) > 20
    assert named - served_series().keys() == set()


def test_the_board_shows_every_metric() -> None:
    shown = set(re.findall(r"thunder_\w+", BOARD.read_text()))
    bare = {re.sub(r"_(bucket|sum|count)$", "", name) for name in shown}
    assert documented().keys() - bare == set()


@pytest.mark.parametrize("expression", expressions())
def test_an_expression_uses_only_labels_that_its_metrics_have(expression: str) -> None:
    series = served_series()
    used = re.findall(r"\b(thunder_\w+)(?:\{([^}]*)\})?", expression)
    for name, matchers in used:
        allowed = series[name] | {"instance", "job"}
        assert set(re.findall(r'(\w+)\s*(?:=~|!~|!=|=)\s*"', matchers)) <= allowed
    known = set.union({"instance", "job"}, *(series[name] for name, _ in used))
    grouped = re.findall(r"\b(?:by|on|ignoring) \(([^)]*)\)", expression)
    if used:
        assert {label.strip() for group in grouped for label in group.split(",")} <= known
    assert expression.count("(") == expression.count(")")


def test_a_recorded_series_is_recorded_before_it_is_read() -> None:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    recorded = {rule["record"] for rule in groups[0]["rules"]}
    read = set(re.findall(r"thunder:[\w:]+", "".join(r["expr"] for r in groups[1]["rules"])))
    assert read == recorded


# --- Kubernetes --------------------------------------------------------------------------------


def problems(value: Any, kind: str, where: str) -> list[str]:
    """What the API server would not take: unknown fields, missing ones, wrong shapes."""
    if kind.startswith("list["):
        if not isinstance(value, list):
            return [f"{where}: no list"]
        inner = kind[5:-1]
        return [p for n, item in enumerate(value) for p in problems(item, inner, f"{where}[{n}]")]
    if kind.startswith("dict("):
        inner = kind[5:-1].split(", ")[1]
        return [p for name, item in value.items() for p in problems(item, inner, f"{where}.{name}")]
    if kind in ("str", "int", "bool"):
        right = {"str": str, "int": int, "bool": bool}[kind]
        return [] if type(value) is right else [f"{where}: {value!r} is no {kind}"]
    if not hasattr(kubernetes, kind):  # object: a quantity, a port by number or name
        return [] if isinstance(value, str | int) else [f"{where}: {value!r}"]
    model = getattr(kubernetes, kind)
    names = {wire: name for name, wire in model.attribute_map.items()}
    found = [f"{where}.{wire}: unknown to {kind}" for wire in value if wire not in names]
    for wire, item in value.items():
        if wire in names:
            found += problems(item, model.openapi_types[names[wire]], f"{where}.{wire}")
    if not found:
        # The generated classes demand what is required.
        model(**{names[wire]: item for wire, item in value.items()})
    return found


@pytest.mark.parametrize(
    "document", KUBERNETES, ids=lambda d: f"{d['kind']}/{d['metadata']['name']}"
)
def test_a_manifest_has_the_fields_of_its_kind_and_no_others(document: Any) -> None:
    assert problems(document, KINDS[document["kind"]], document["kind"]) == []


def test_the_router_in_kubernetes_reads_its_settings_and_finds_its_workers(tmp_path: Path) -> None:
    toml = tmp_path / "thunder.toml"
    toml.write_text(kubernetes_object("ConfigMap", "thunder-router")["data"]["thunder.toml"])
    settings = load(toml)
    pod = kubernetes_object("Deployment", "thunder-router")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    arguments = parsed(*container["args"])

    assert str(arguments.config) == "/etc/thunder-router/thunder.toml"
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert str(arguments.config.parent) in mounts
    written = [settings.journal.path, settings.journal.snapshot]
    assert {str(path.parent) for path in written if path} <= mounts
    assert (settings.host, settings.port) == ("0.0.0.0", container["ports"][0]["containerPort"])
    # Kubernetes labels the slices of a service with its name.
    service = kubernetes_object("Service", "sglang")
    assert settings.workers.kubernetes_selector == "kubernetes.io/service-name=sglang"
    slices = [
        {
            "addressType": "IPv4",
            "ports": [{"name": p["name"], "port": p["port"]} for p in service["spec"]["ports"]],
            "endpoints": [{"addresses": ["10.0.0.1"]}],
        }
    ]
    assert endpoint_urls(slices, settings.workers.kubernetes_port) == ["http://10.0.0.1:30000"]


def test_the_pod_waits_longer_than_the_router_needs_to_end() -> None:
    deployment = kubernetes_object("Deployment", "thunder-router")["spec"]
    pod = deployment["template"]["spec"]
    (container,) = pod["containers"]
    toml = kubernetes_object("ConfigMap", "thunder-router")["data"]["thunder.toml"]
    delay_s, grace_s = (
        int(re.findall(rf"shutdown_{name}_s = (\d+)", toml)[0]) for name in ("delay", "grace")
    )
    probe = container["readinessProbe"]

    assert pod["terminationGracePeriodSeconds"] > delay_s + grace_s
    assert delay_s > probe["periodSeconds"] * probe["failureThreshold"], "a probe sees the 503"
    assert (deployment["replicas"], deployment["strategy"]["type"]) == (1, "Recreate")
    probes = [container[f"{kind}Probe"]["httpGet"] for kind in ("liveness", "readiness")]
    assert [probe["path"] for probe in probes] == ["/liveness", "/readiness"]


def test_the_role_allows_what_discovery_does_and_nothing_else() -> None:
    assert kubernetes_object("Role", "thunder-router")["rules"] == [
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list"]}
    ]
    bound = kubernetes_object("RoleBinding", "thunder-router")
    pod = kubernetes_object("Deployment", "thunder-router")["spec"]["template"]["spec"]
    assert bound["subjects"][0]["name"] == pod["serviceAccountName"]


def test_workers_run_with_the_flags_of_the_launch_file() -> None:
    text = (ROOT / "examples/launch/glm-4.7.sh").read_text()
    launched = re.findall(r"^    (--[a-z-]+)(?: (\S+))? \\$", text, re.MULTILINE)
    pod = kubernetes_object("StatefulSet", "sglang")["spec"]["template"]["spec"]
    flags = [f"{flag}={value}" if value else flag for flag, value in launched]
    assert pod["containers"][0]["args"] == flags


# --- image and compose -------------------------------------------------------------------------


def test_every_environment_variable_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    given = dict(COMPOSE["services"]["router"]["environment"])
    pod = kubernetes_object("Deployment", "thunder-router")["spec"]["template"]["spec"]
    for variable in pod["containers"][0]["env"]:
        given[variable["name"]] = "a key"
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    settings = Settings()

    assert settings.workers.urls == ("http://worker-0:30000", "http://worker-1:30000")
    for key in (settings.api_key, settings.admin_key, settings.workers.api_key):
        assert key is not None
        assert key.get_secret_value() == "a key"
    # One that is no setting is not an error of pydantic's, so look that none was left over.
    plain = Settings.model_fields
    sections = [name.removeprefix("THUNDER_").lower().split("__")[0] for name in given]
    assert [name for name in sections if name not in plain] == []
    grace = COMPOSE["services"]["router"]["stop_grace_period"].removesuffix("s")
    assert int(grace) > settings.shutdown_grace_s


def test_the_commands_of_compose_and_image_are_ours() -> None:
    commands = [
        s["command"] for s in COMPOSE["services"].values() if s["image"] == "thunder-router"
    ]
    (image,) = re.findall(r"^CMD (\[.*\])$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    read = [parsed(*command).command for command in [*commands, json.loads(image)]]
    assert read == ["serve", "emulate", "emulate", "serve"]


def test_the_image_copies_what_exists_and_what_is_not_ignored() -> None:
    copies = re.findall(r"^COPY (?!--from)(.+)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    sources = {source for line in copies for source in line.split()[:-1]}
    kept = re.findall(r"^!(.+)$", (DEPLOY / "Dockerfile.dockerignore").read_text(), re.MULTILINE)

    assert [source for source in sources if not (ROOT / source).exists()] == []
    assert sources == set(kept)
    pyproject = (ROOT / "pyproject.toml").read_text()
    assert 'readme = "README.md"' in pyproject
    assert "README.md" in sources


def test_the_files_that_compose_mounts_are_here() -> None:
    mounts = [v for s in COMPOSE["services"].values() for v in s.get("volumes", ()) if v[0] == "."]
    assert len(mounts) == 3
    assert [m for m in mounts if not (DEPLOY / m.split(":")[0]).exists()] == []
    assert yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())["rule_files"] == [
        RULES.name
    ]
