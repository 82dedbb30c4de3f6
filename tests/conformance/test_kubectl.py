"""kubectl as a user calls it. Its messages differ by version; the tests assert what they share."""

import json
from collections.abc import Callable
from typing import Any, Final

import pytest
import yaml

from tests.conformance.clusters import AnyCluster
from tests.conformance.kubectl import Kubectl
from tests.conformance.objects import GROUP, bound_pod, configmap, deployment, pod, widget
from tests.conformance.space import Space

SHORT: Final = "--timeout=20s"


@pytest.fixture
def kubectl(cluster: AnyCluster, space: Space) -> Kubectl:
    return Kubectl(cluster, space.name)


# apply, create, replace


def test_apply_creates_configures_and_leaves_alone(kubectl: Kubectl, space: Space) -> None:
    assert f"widget.{GROUP}/one created" in kubectl.apply(widget())
    assert f"widget.{GROUP}/one unchanged" in kubectl.apply(widget())
    assert f"widget.{GROUP}/one configured" in kubectl.apply(widget(size=4, color="red"))
    assert "configured" in kubectl.apply(widget(size=4))  # takes `color` away again
    assert space.get("widgets", "one")["spec"] == {"size": 4, "replicas": 1}


def test_several_documents_are_applied_in_any_order(kubectl: Kubectl, space: Space) -> None:
    said = kubectl.apply(widget("a"), configmap("b"), widget("c"), deployment(0))
    assert said.count("created") == 4
    assert kubectl.apply(configmap("b"), deployment(0)).count("unchanged") == 2


def test_apply_patches_a_deployment_strategically(kubectl: Kubectl, space: Space) -> None:
    kubectl.apply(deployment(1))
    kubectl("set", "image", "deployment/web", "main=registry.test/main:2")
    kubectl("set", "env", "deployment/web", "A=1")
    kubectl("scale", "deployment/web", "--replicas=3")
    spec = space.get("deployments", "web")["spec"]
    container = spec["template"]["spec"]["containers"][0]
    assert (spec["replicas"], container["image"]) == (3, "registry.test/main:2")
    assert container["env"] == [{"name": "A", "value": "1"}]
    kubectl.apply(deployment(1))
    assert space.get("deployments", "web")["spec"]["replicas"] == 1


def test_apply_on_the_side_of_the_server(kubectl: Kubectl, space: Space) -> None:
    assert "serverside-applied" in kubectl.apply(widget(), flags=("--server-side",))
    assert space.get("widgets", "one")["spec"]["size"] == 3


def test_a_difference_is_shown_and_nothing_is_changed(kubectl: Kubectl, space: Space) -> None:
    kubectl.apply(widget())
    done = kubectl.run("diff", "-f", "-", text=yaml.safe_dump(widget(size=5)))
    assert done.returncode == 1
    assert "+  size: 5" in done.stdout
    assert space.get("widgets", "one")["spec"]["size"] == 3


def test_a_dry_run_on_the_server_keeps_nothing(kubectl: Kubectl, space: Space) -> None:
    assert "(server dry run)" in kubectl.apply(widget(), flags=("--dry-run=server",))
    assert space.find("widgets", "one") is None


def test_what_exists_is_not_created_but_replaced(kubectl: Kubectl, space: Space) -> None:
    assert f"widget.{GROUP}/one created" in kubectl(
        "create", "-f", "-", text=yaml.safe_dump(widget())
    )
    again = kubectl.run("create", "-f", "-", text=yaml.safe_dump(widget()))
    assert (again.returncode, "AlreadyExists" in again.stderr) == (1, True)
    kubectl("replace", "-f", "-", text=yaml.safe_dump(widget(size=8)))
    assert space.get("widgets", "one")["spec"]["size"] == 8


def test_a_refusal_names_the_field(kubectl: Kubectl) -> None:
    """kubectl itself may find it before the server does."""
    done = kubectl.run("apply", "-f", "-", text=yaml.safe_dump(widget(size=0)))
    assert done.returncode == 1
    assert "spec.size" in done.stderr
    done = kubectl.run("apply", "-f", "-", text=yaml.safe_dump(widget(colour="red")))
    assert done.returncode == 1
    assert "colour" in done.stderr


MADE_BY_COMMAND: dict[str, tuple[str, ...]] = {
    "configmap/c": ("configmap", "c", "--from-literal=a=b"),
    "secret/s": ("secret", "generic", "s", "--from-literal=k=v"),
    "serviceaccount/robot": ("serviceaccount", "robot"),
    "service/s": ("service", "clusterip", "s", "--tcp=80:8080"),
    "deployment.apps/d": ("deployment", "d", "--image=x:1"),
    "role.rbac.authorization.k8s.io/r": ("role", "r", "--verb=get", "--resource=pods"),
}


@pytest.mark.parametrize("made", MADE_BY_COMMAND)
def test_what_a_command_prints_can_be_applied(kubectl: Kubectl, made: str) -> None:
    """Without --dry-run the command sends protobuf, which the local cluster does not read."""
    text = kubectl("create", *MADE_BY_COMMAND[made], "--dry-run=client", "-o", "yaml")
    assert kubectl("apply", "-f", "-", text=text).split() == [made, "created"]


def test_a_namespace_is_created_and_deleted(kubectl: Kubectl, space: Space) -> None:
    name = f"{space.name}-second"
    made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    kubectl("create", "-f", "-", text=yaml.safe_dump(made))
    assert f"namespace/{name}" in kubectl("get", "namespaces", "-o", "name").split()
    kubectl("delete", "namespace", name, SHORT)
    assert kubectl.run("get", "namespace", name).returncode == 1


# get


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ((), "NAME SIZE READY one 3"),
        (("--no-headers",), "one 3"),
        (("-o", "name"), f"widget.{GROUP}/one"),
        (("-o", "jsonpath={.items[*].spec.size}"), "3"),
        (("-l", "color=red"), ""),
        (("--field-selector=metadata.name=one", "-o", "name"), f"widget.{GROUP}/one"),
        (("--chunk-size=1", "--no-headers"), "one 3"),
    ],
)
def test_get_a_custom_resource(
    kubectl: Kubectl, space: Space, flags: tuple[str, ...], expected: str
) -> None:
    space.create("widgets", widget())
    assert kubectl("get", "wix", *flags).split() == expected.split()


READERS: dict[str, Callable[[str], Any]] = {"json": json.loads, "yaml": yaml.safe_load}


@pytest.mark.parametrize("form", READERS)
def test_get_shows_whole_objects(kubectl: Kubectl, space: Space, form: str) -> None:
    created = space.create("configmaps", configmap())
    shown = READERS[form](kubectl("get", "configmap", "one", "-o", form))
    assert shown["data"] == created["data"]
    assert shown["metadata"]["uid"] == created["metadata"]["uid"]


def test_get_of_built_in_kinds(kubectl: Kubectl, space: Space) -> None:
    space.create("pods", bound_pod())
    header, row = kubectl("get", "pods", "-o", "wide").splitlines()
    assert header.split()[:7] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE"]
    assert row.split()[:4] == ["one", "0/1", "Pending", "0"]
    assert row.split()[6] == "unserved0"
    kubectl.apply(deployment(0))
    everything = kubectl("get", "all")
    assert "pod/one" in everything
    assert "deployment.apps/web   0/0" in everything
    kubectl("get", "events,nodes,crd,leases,services,secrets,configmaps")


def test_what_is_not_there_is_said(kubectl: Kubectl) -> None:
    done = kubectl.run("get", "widget", "none")
    assert (done.returncode, "NotFound" in done.stderr) == (1, True)
    done = kubectl.run("get", "doodads")
    assert (done.returncode, "doesn't have a resource type" in done.stderr) == (1, True)


def test_describe(kubectl: Kubectl, space: Space) -> None:
    kubectl.apply(widget(), deployment(2), pod())
    assert "Size:" in kubectl("describe", "widget", "one")
    assert "2 desired" in kubectl("describe", "deployment", "web")
    assert "registry.test/main:1" in kubectl("describe", "pod", "one")
    for kind in ("service", "node", "crd", "configmap", "secret"):
        kubectl("describe", kind)
    kubectl("describe", "namespace", space.name)  # others end meanwhile


def test_api_resources_and_explain(kubectl: Kubectl) -> None:
    listed = kubectl("api-resources", f"--api-group={GROUP}", "--no-headers").split()
    assert listed == ["widgets", "wix", f"{GROUP}/v1alpha1", "true", "Widget"] or listed == [
        *("widgets", "wix", GROUP, "true", "Widget")  # of old, without the version
    ]
    assert f"{GROUP}/v1alpha1" in kubectl("api-versions")
    assert "Its paint." in kubectl("explain", "widget.spec.color")
    assert "Pod" in kubectl("explain", "pod")


# label, annotate, patch, scale


def test_label_annotate_and_patch(kubectl: Kubectl, space: Space) -> None:
    space.create("widgets", widget())
    kubectl("label", "widget", "one", "tier=edge")
    kubectl("annotate", "widget", "one", "note=hello")
    kubectl("patch", "widget", "one", "--type=merge", "-p", '{"spec":{"size":6}}')
    operation = '[{"op":"replace","path":"/spec/replicas","value":2}]'
    kubectl("patch", "widget", "one", "--type=json", "-p", operation)
    one = space.get("widgets", "one")
    assert one["metadata"]["labels"] == {"tier": "edge"}
    assert one["metadata"]["annotations"]["note"] == "hello"
    assert one["spec"] == {"size": 6, "replicas": 2}
    kubectl("label", "widget", "one", "tier-")
    assert not space.get("widgets", "one")["metadata"].get("labels")


def test_a_label_is_not_overwritten_unasked(kubectl: Kubectl, space: Space) -> None:
    space.create("widgets", widget())
    kubectl("label", "widget", "one", "tier=edge")
    assert kubectl.run("label", "widget", "one", "tier=cloud").returncode == 1
    kubectl("label", "widget", "one", "tier=cloud", "--overwrite")
    assert space.get("widgets", "one")["metadata"]["labels"] == {"tier": "cloud"}


def test_scale_a_custom_resource(kubectl: Kubectl, space: Space) -> None:
    space.create("widgets", widget())
    assert "scaled" in kubectl("scale", "widget", "one", "--replicas=7")
    assert space.get("widgets", "one")["spec"]["replicas"] == 7


# wait


def test_wait_for_a_condition(kubectl: Kubectl, space: Space) -> None:
    space.create("pods", pod())
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    space.patch("pods", "one", {"status": ready}, subresource="status").ok()
    assert "pod/one condition met" in kubectl("wait", "pod/one", "--for=condition=Ready", SHORT)


def test_wait_for_what_does_not_come_times_out(kubectl: Kubectl, space: Space) -> None:
    space.create("pods", pod())
    done = kubectl.run("wait", "pod/one", "--for=condition=Ready", "--timeout=1s")
    assert (done.returncode, "timed out" in done.stderr) == (1, True)


def test_wait_for_a_crd(kubectl: Kubectl) -> None:
    crd = f"crd/widgets.{GROUP}"
    assert "condition met" in kubectl("wait", "--for=condition=Established", crd, SHORT)


# delete

DELETIONS: dict[str, tuple[str, ...]] = {
    "by name": ("delete", "widget", "a", "b"),
    "all": ("delete", "widget", "--all"),
    "by label": ("delete", "widget", "-l", "x=1"),
    "in the foreground": ("delete", "widget", "a", "b", "--cascade=foreground"),
    "by force": ("delete", "widget", "a", "b", "--force", "--grace-period=0"),
}


@pytest.mark.parametrize("case", DELETIONS)
def test_delete(kubectl: Kubectl, space: Space, case: str) -> None:
    for name in ("a", "b"):
        made = widget(name)
        made["metadata"]["labels"] = {"x": "1"}
        space.create("widgets", made)
    kubectl(*DELETIONS[case], SHORT)
    assert space.list("widgets") == []


def test_delete_of_a_file_ignores_what_is_gone_when_told(kubectl: Kubectl, space: Space) -> None:
    text = yaml.safe_dump(widget())
    assert kubectl.run("delete", "-f", "-", text=text).returncode == 1
    kubectl("delete", "--ignore-not-found", "-f", "-", text=text)


def test_delete_waits_for_finalizers(kubectl: Kubectl, space: Space) -> None:
    space.create("configmaps", configmap(finalizers=["test/hold"]))
    done = kubectl.run("delete", "configmap", "one", "--timeout=1s")
    assert (done.returncode, "timed out" in done.stderr) == (1, True)
    assert "deletionTimestamp" in space.get("configmaps", "one")["metadata"]
    space.patch("configmaps", "one", {"metadata": {"finalizers": None}}).ok()


def test_two_groups_with_one_plural(kubectl: Kubectl, space: Space) -> None:
    for group in ("edgeai.io", "sedna.io"):
        made = {
            "apiVersion": f"{group}/v1alpha1",
            "kind": "Model",
            "metadata": {"name": "one"},
            "spec": {"url": f"/models/{group}.onnx", "format": "onnx"},
        }
        kubectl.apply(made)
    for group in ("edgeai.io", "sedna.io"):
        query = ("get", f"models.{group}", "one", "-o", "jsonpath={.spec.url}")
        assert kubectl(*query) == f"/models/{group}.onnx"
