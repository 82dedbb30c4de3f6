"""What deploy/ says of the code is true: rights, names of metrics, times, and where things are."""

import re
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from common import traces
from common.wire import AUDIENCE
from globalmanager.edge.door import server as edge_server
from globalmanager.ha import elector, presence
from globalmanager.manifests import rbac
from globalmanager.rest import server as rest_server
from localcontroller import http_server as edge_http_server
from localcontroller.link import conversation
from localcontroller.settings import Settings as EdgeSettings
from tests.support.manifests import deployed

DEPLOY: Final = Path(__file__).parents[2] / "deploy"


def test_the_rights_are_those_of_the_code() -> None:
    """When this fails: make crds"""
    written = {path.name: path.read_text() for path in (DEPLOY / "chart" / "rules").iterdir()}
    assert written == rbac.files()


def may(group: str, verb: str, resource: str) -> bool:
    """Whether the account may do this in every namespace, where the group is installed."""
    rules = [*rbac.base_rules(), *rbac.group_rules(group)]
    return any(verb in rule["verbs"] and resource in rule["resources"] for rule in rules)


@pytest.mark.parametrize("group", rbac.groups())
def test_the_account_is_as_mighty_as_the_page_on_security_says(group: str) -> None:
    """What somebody can do with its token: docs/security.md."""
    assert may(group, "create", "pods"), "so it runs anything, with the rights of any account"
    assert may(group, "get", "secrets") == (group != "kubeflow.org")
    assert may(group, "create", "pods/exec") == (group == "kai.alibabacloud.com")
    for verb in ("create", "update", "patch", "delete"):
        for resource in (
            *("namespaces", "nodes", "clusterroles", "clusterrolebindings"),
            *("mutatingwebhookconfigurations", "validatingwebhookconfigurations"),
            *("certificatesigningrequests", "customresourcedefinitions"),
        ):
            assert not may(group, verb, resource), f"{verb} {resource}"


@pytest.mark.parametrize("group", rbac.groups())
@pytest.mark.parametrize(
    ("resource", "needed_by"),
    [
        *(
            (resource, {"kai.alibabacloud.com"})
            for resource in ("pods/exec", "serviceaccounts", "roles", "rolebindings")
        ),
        ("deployments", {"edgeai.io", "sedna.io"}),
        ("horizontalpodautoscalers", {"edgeai.io", "sedna.io", "kubeflow.org"}),
        ("podgroups", {"kubeflow.org"}),
    ],
)
def test_the_account_has_no_right_that_only_another_group_needs(
    group: str, resource: str, needed_by: set[str]
) -> None:
    assert may(group, "create", resource) == (group in needed_by)


# ---- pods ---------------------------------------------------------------------------------------


def template(name: str) -> dict[str, Any]:
    """Spec of the pods that a Deployment or DaemonSet of deploy/edgeai.yaml makes."""
    (document,) = [
        each
        for each in deployed()
        if each["metadata"]["name"] == name and each["kind"] in ("Deployment", "DaemonSet")
    ]
    spec: dict[str, Any] = document["spec"]["template"]["spec"]
    return spec


ENDS: Final = {
    # Cut short it leaves the Lease to run out, and edges that were not told to go elsewhere.
    "globalmanager": (
        elector._RELEASE_S,  # the next one may lead
        edge_server.STOP_TIMEOUT_S,  # edges are told, and what they sent is written
        presence._DELETE_S,  # the others forget it
        rest_server.STOP_TIMEOUT_S,
    ),
    # Cut short it loses nothing, but its workers' requests are not answered.
    "localcontroller": (edge_http_server.STOP_S, conversation.CLOSE_S),
}


@pytest.mark.parametrize("name", ENDS)
def test_a_pod_is_given_the_time_that_its_end_takes(name: str) -> None:
    end_s = sum(ENDS[name]) + traces.CLOSE_S
    grace_s = template(name)["terminationGracePeriodSeconds"]
    assert grace_s >= end_s + 2  # a process on a busy machine


TAINTS: Final = {
    "of edge nodes, none else is to run there": ("node-role.kubernetes.io/edge", "NoSchedule"),
    "of edge nodes, none else is to stay there": ("node-role.kubernetes.io/edge", "NoExecute"),
    "of a node that is cut off": ("node.kubernetes.io/unreachable", "NoExecute"),
    "of a node whose kubelet is away": ("node.kubernetes.io/not-ready", "NoExecute"),
}


@pytest.mark.parametrize(("key", "effect"), TAINTS.values(), ids=TAINTS)
def test_a_local_controller_stays_on_its_node_whatever_befalls_it(key: str, effect: str) -> None:
    """Offline is normal at the edge: an eviction would end the node's only witness."""
    tolerating = [
        each
        for each in template("localcontroller")["tolerations"]
        if each["key"] == key and each.get("effect", effect) == effect
    ]
    assert [each["operator"] for each in tolerating] == ["Exists"]
    assert "tolerationSeconds" not in tolerating[0], "it would be evicted after that time"


def test_the_ledger_is_on_the_node_and_not_in_the_pod() -> None:
    """What workers were told is kept must outlive the pod: an update replaces it."""
    spec = template("localcontroller")
    (container,) = spec["containers"]
    (directory,) = [
        arg.removeprefix("--state-dir=") for arg in container["args"] if "--state-dir=" in arg
    ]
    (mount,) = [each for each in container["volumeMounts"] if each["mountPath"] == directory]
    (volume,) = [each for each in spec["volumes"] if each["name"] == mount["name"]]
    assert not mount.get("readOnly")
    assert volume["hostPath"] == {
        "path": "/var/lib/edgeai/localcontroller",  # a former release's ledger is found there
        "type": "DirectoryOrCreate",
    }


def test_a_token_is_renewed_well_before_it_runs_out() -> None:
    """The kubelet asks for the next one when 80 % of the lifetime are over, and looks at it once a
    minute or so; then the LocalController must see it, and change over, within what is left."""
    (source,) = [
        volume["projected"]["sources"][0]["serviceAccountToken"]
        for volume in template("localcontroller")["volumes"]
        if "projected" in volume
    ]
    lifetime_s, kubelet_s = source["expirationSeconds"], 90.0
    assert 0.2 * lifetime_s > kubelet_s + 2 * default("credential_check_s")
    assert lifetime_s <= 3600, "for so long a stolen one could be used"
    assert source["audience"] == AUDIENCE


def default(setting: str) -> Any:
    """Of the LocalController."""
    fields = {field.name: field for field in msgspec.structs.fields(EdgeSettings)}
    return fields[setting].default


def test_the_images_have_a_base_that_nobody_can_change() -> None:
    lines = (DEPLOY / "containers" / "Containerfile").read_text().splitlines()
    (base,) = (line for line in lines if line.startswith("ARG BASE_IMAGE="))
    assert re.search(r"@sha256:[0-9a-f]{64}$", base)
    stages = {line.split()[3] for line in lines if line.startswith("FROM ")}
    others = {line.split()[1] for line in lines if line.startswith("FROM ")} - stages
    assert others == {"${BASE_IMAGE}"}
