"""Turns values into objects: what deploy/ has, with the changes that the values ask for.

Only deploy/ says what an installation is made of. Without changes the result is what `kubectl
kustomize` renders.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import yaml

from edgeai.api.resources import Object
from edgeai.cli.install.errors import InstallError
from edgeai.cli.install.kustomization import CLUSTER_SCOPED, build, extend, merged, read
from edgeai.cli.install.sources import deploy
from edgeai.cli.install.values import Values
from globalmanager.manifests.rbac import NAMESPACE

_ORDER: Final = (
    *("Namespace", "CustomResourceDefinition", "ServiceAccount", "ClusterRole", "Role"),
    *(
        "ClusterRoleBinding",
        "RoleBinding",
        "PriorityLevelConfiguration",
        "FlowSchema",
        "Secret",
        "ConfigMap",
        "Service",
        "NetworkPolicy",
    ),
    *("PodDisruptionBudget", "ServiceMonitor", "PrometheusRule", "Deployment", "DaemonSet"),
)
"""Each kind after those that it needs: no pod starts without its rights and configuration."""


def render(values: Values, source: Path | None = None) -> list[Object]:
    """All objects but the Secrets, the certificates and the definitions, in the order in which
    they are applied.

    Args: source: the directory deploy/; None: that of this version
    """
    source = source or deploy()
    objects = build(source / "base")
    names = [*values.groups, values.identity, *values.components]
    if values.published_port:
        names.append("nodeport")
    for name in dict.fromkeys(names):
        objects = extend(objects, source / "components" / name)
    if values.monitoring:
        objects += build(source / "monitoring")
    if values.replicas == 1:
        # With one pod, a budget of one pod would hold every drain of its node for ever.
        objects = [each for each in objects if each["kind"] != "PodDisruptionBudget"]
    for each in objects:
        _move(each, values)
        _change(each, values)
    return in_order(objects)


def definitions(values: Values, source: Path | None = None) -> list[Object]:
    """The CustomResourceDefinitions of the groups."""
    source = source or deploy()
    found: dict[str, Object] = {}
    for group in values.groups:
        for path in sorted((source / "crds").glob(f"{group}_*.yaml")):
            found |= {each["metadata"]["name"]: each for each in read(path)}
    return list(found.values())


def in_order(objects: list[Object]) -> list[Object]:
    """Raises: InstallError for a kind without a place in the order"""
    for each in objects:
        if each["kind"] not in _ORDER:
            raise InstallError(
                f"deploy/ has the kind {each['kind']}, which has no place in the order"
            )
    return sorted(objects, key=lambda each: _ORDER.index(each["kind"]))


def as_yaml(objects: list[Object]) -> str:
    return yaml.dump_all(objects, Dumper=_Plain, sort_keys=False, allow_unicode=True)


class _Plain(yaml.SafeDumper):
    """Writes repeated values in full, because YAML anchors and aliases are hard to read."""

    def ignore_aliases(self, data: object) -> bool:
        return True


# ---- changes ------------------------------------------------------------------------------------


def _move(object_: Object, values: Values) -> None:
    """Into the namespace of the values, with the subjects of bindings."""
    if object_["kind"] == "Namespace":
        object_["metadata"]["name"] = values.namespace
    elif object_["kind"] not in CLUSTER_SCOPED:
        object_["metadata"]["namespace"] = values.namespace
    for subject in object_.get("subjects", ()):
        if subject.get("namespace") == NAMESPACE:
            subject["namespace"] = values.namespace
    if object_["kind"] == "FlowSchema":
        for rule in object_["spec"]["rules"]:
            for subject in rule["subjects"]:
                subject["serviceAccount"]["namespace"] = values.namespace
    if object_["metadata"]["name"] == "edgeai-metrics-reader":
        for subject in object_.get("subjects", ()):
            subject["namespace"], _, subject["name"] = values.prometheus.partition("/")


def _change(object_: Object, values: Values) -> None:
    kind, name = object_["kind"], object_["metadata"]["name"]
    match kind, name:
        case "ConfigMap", "localcontroller":
            object_["data"]["globalManager"] = _edge_url(values)
        case "Service", "globalmanager-edge":
            for port in object_["spec"]["ports"]:
                port["nodePort"] = values.published_port
        case "Deployment", "globalmanager":
            object_["spec"]["replicas"] = values.replicas
        case "DaemonSet", "localcontroller" if values.pods_api:
            (container,) = object_["spec"]["template"]["spec"]["containers"]
            container["env"].append({"name": "EDGEAI_PODS_API", "value": values.pods_api})
    if kind in ("Deployment", "DaemonSet"):
        for container in object_["spec"]["template"]["spec"]["containers"]:
            container["image"] = _image(container["image"], container["name"], values)
            for role, requirements in values.resources.items():
                if role == container["name"]:
                    wanted = msgspec.to_builtins(requirements)
                    container["resources"] = merged(container["resources"], wanted)


def _edge_url(values: Values) -> str:
    host = f"[{values.host}]" if ":" in values.host else values.host
    return f"wss://{host}:{values.edge_port}"


def _image(image: str, role: str, values: Values) -> str:
    """The image with the registry, the tag or the digest of the values."""
    name, _, tag = image.rpartition(":")
    registry, _, last = name.rpartition("/")
    name = f"{values.registry or registry}/{last}"
    digests = {str(key): digest for key, digest in values.digests.items()}
    return f"{name}@{digests[role]}" if role in digests else f"{name}:{values.tag or tag}"


def images(objects: list[Object]) -> Iterator[str]:
    """The images that the objects run."""
    for each in objects:
        if each["kind"] in ("Deployment", "DaemonSet"):
            for container in each["spec"]["template"]["spec"]["containers"]:
                yield container["image"]
