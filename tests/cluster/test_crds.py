"""The definitions of the chart on a real API server: what it accepts, refuses and shows."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from edgeai.cli.api import ApiError, Object, path_of
from edgeai.cli.jobs.submitting import Loader
from tests.cluster.controlplane import CRDS, ControlPlane
from tests.cluster.samples import model, service
from tests.globalmanager.kinds.edge.samples import PROPOSAL, SEDNA_STYLE
from tests.globalmanager.kinds.training.samples import pytorch_spec
from tests.support.client import Client

EXAMPLE = CRDS.parents[2] / "edgeai" / "demo" / "joint_inference" / "joint_inference.yaml"
MANIFESTS = Path(__file__).parent / "manifests"
UNQUOTED = """
apiVersion: edgeai.io/v1alpha1
kind: JointInferenceService
metadata: {{name: digits, namespace: {0}}}
spec:
  edgeWorker:
    model: {{name: small}}
    hardExampleMining: {{name: IBT, parameters: [{{key: threshold_img, value: {parameters}}}]}}
    template:
      spec:
        nodeName: edge0
        containers: [{{name: main, image: "small:1", env: [{{name: LIMIT, value: {env}}}]}}]
  cloudWorker:
    model: {{name: big}}
    template: {{spec: {{containers: [{{name: main, image: "big:1"}}]}}}}
"""
CRD_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def crd_names() -> list[str]:
    return sorted(yaml.safe_load(file.read_text())["metadata"]["name"] for file in CRDS.iterdir())


@pytest.mark.parametrize("name", crd_names())
def test_a_crd_is_established_with_all_its_names_and_a_structural_schema(
    client: Client, name: str
) -> None:
    status = client.get(f"{CRD_PATH}/{name}")["status"]
    conditions = {each["type"]: each["status"] for each in status["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}


def test_applying_the_crds_again_changes_nothing(crds: ControlPlane) -> None:
    again = crds.kubectl("apply", "-f", str(CRDS))
    assert again.returncode == 0, again.stderr
    assert len(again.stdout.splitlines()) == len(crd_names())
    assert all(line.endswith(" unchanged") for line in again.stdout.splitlines()), again.stdout


# ---- what is refused ---------------------------------------------------------------------------


TEMPLATE = "spec.edgeWorker.template"
MINING = "spec.edgeWorker.hardExampleMining"
BAD_SERVICES = [
    pytest.param("spec.edgeWorker", "a word", "spec.edgeWorker", id="wrong type"),
    pytest.param("spec.edgeWorker.model.name", 7, "spec.edgeWorker.model.name", id="number"),
    pytest.param("spec.edgeWorker.model.name", "", "spec.edgeWorker.model.name", id="empty name"),
    pytest.param("spec.edgeWorker.model", {}, "spec.edgeWorker.model.name", id="no model name"),
    pytest.param(f"{TEMPLATE}.spec.containers", [], f"{TEMPLATE}.spec.containers", id="none"),
    pytest.param(f"{TEMPLATE}.spec", {}, f"{TEMPLATE}.spec.containers", id="no containers"),
    pytest.param(MINING, {"name": "Magic"}, f"{MINING}.name", id="unknown algorithm"),
    pytest.param(
        MINING,
        {"name": "IBT", "parameters": [{"key": "threshold_img", "value": 0.9}]},
        f"{MINING}.parameters[0].value",
        id="number as a parameter",
    ),
    pytest.param(
        f"{TEMPLATE}.spec.containers", [{"args": [8080]}], "containers[0].args[0]", id="arg"
    ),
    pytest.param(
        f"{TEMPLATE}.spec.containers",
        [{"env": [{"name": "LIMIT", "value": 0.9}]}],
        f"{TEMPLATE}.spec.containers[0].env[0].value",
        id="number as an environment variable",
    ),
    pytest.param("spec.cloudWorker.hpa", {"maxReplicas": 0}, "hpa.maxReplicas", id="no replicas"),
    pytest.param("spec.cloudWorker", None, "spec.cloudWorker", id="no cloud worker"),
    pytest.param("spec", None, "spec", id="no spec"),
]


def changed(object_: Object, path: str, value: Any) -> Object:
    """A copy with the field at `path` set; None: without it."""
    copied = copy.deepcopy(object_)
    *parents, last = path.split(".")
    at = copied
    for parent in parents:
        at = at[parent]
    at[last] = value
    if value is None:
        del at[last]
    return copied


@pytest.mark.parametrize("group", ["edgeai.io", "sedna.io"])
@pytest.mark.parametrize(("path", "value", "field"), BAD_SERVICES)
def test_a_bad_service_is_refused_by_a_message_that_names_the_field(
    client: Client, namespace: str, group: str, path: str, value: Any, field: str
) -> None:
    object_ = {**service(namespace), "apiVersion": f"{group}/v1alpha1"}
    with pytest.raises(ApiError) as caught:
        client.create(changed(object_, path, value), dry_run=True)
    assert caught.value.code == 422
    assert field in str(caught.value)


@pytest.mark.parametrize(
    ("path", "value"),
    [("spec.url", ""), ("spec.url", None), ("spec.url", 7), ("spec.format", ["onnx"])],
    ids=["empty url", "no url", "number as url", "list as format"],
)
def test_a_bad_model_is_refused_by_a_message_that_names_the_field(
    client: Client, namespace: str, path: str, value: Any
) -> None:
    with pytest.raises(ApiError) as caught:
        client.create(changed(model("small", namespace), path, value), dry_run=True)
    assert caught.value.code == 422
    assert path in str(caught.value)


BAD_TRAINING_JOBS = [
    ({"pytorchReplicaSpecs": {}}, "spec.pytorchReplicaSpecs"),
    (pytorch_spec(1001), "spec.pytorchReplicaSpecs.Worker.replicas"),
    (pytorch_spec(policy="Sometimes"), "spec.pytorchReplicaSpecs.Master.restartPolicy"),
    (pytorch_spec(nprocPerNode="many"), "spec.nprocPerNode"),
    (pytorch_spec(nprocPerNode=4), "spec.nprocPerNode"),
    (pytorch_spec(run={"managedBy": "me"}), "spec.runPolicy.managedBy"),
    (pytorch_spec(run={"activeDeadlineSeconds": 0}), "spec.runPolicy.activeDeadlineSeconds"),
]


@pytest.mark.parametrize(("spec", "field"), BAD_TRAINING_JOBS)
def test_a_bad_training_job_is_refused_by_a_message_that_names_the_field(
    client: Client, namespace: str, spec: dict[str, Any], field: str
) -> None:
    with pytest.raises(ApiError) as caught:
        client.create(training_job(namespace, spec), dry_run=True)
    assert caught.value.code == 422
    assert field in str(caught.value)


def training_job(namespace: str, spec: dict[str, Any]) -> Object:
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "mnist", "namespace": namespace},
        "spec": spec,
    }


def test_kubectl_shows_the_refusal_and_leaves_what_was_there(
    crds: ControlPlane, namespace: str
) -> None:
    good = service(namespace)
    crds.client.create(good)
    bad = changed(good, "spec.edgeWorker.model.name", "")
    refused = crds.kubectl("apply", "-f", "-", documents=[bad])
    assert refused.returncode == 1
    assert "spec.edgeWorker.model.name" in refused.stderr
    assert crds.client.get(path_of(good))["spec"] == good["spec"]


# ---- what is accepted --------------------------------------------------------------------------


def manifests(text: str, namespace: str) -> list[Object]:
    """The documents as they are, moved to `namespace`."""
    documents: list[Object] = list(yaml.safe_load_all(text))
    for document in documents:
        document["metadata"]["namespace"] = namespace
    return documents


@pytest.mark.parametrize(
    "text",
    [PROPOSAL, SEDNA_STYLE, EXAMPLE.read_text()],
    ids=["the proposal's", "Sedna's", "the example's"],
)
def test_a_users_manifest_is_applied_and_nothing_of_it_is_pruned(
    crds: ControlPlane, namespace: str, text: str
) -> None:
    documents = manifests(text, namespace)
    applied = crds.kubectl("apply", "-f", "-", documents=documents)
    assert applied.returncode == 0, applied.stderr
    for document in documents:
        assert crds.client.get(path_of(document))["spec"] == document["spec"]


@pytest.mark.parametrize("name", ["sedna-hostpath", "sedna-bucket", "sedna-incremental"])
@pytest.mark.parametrize("turned", [False, True], ids=["as it is", "documents in reverse"])
def test_a_file_of_sednas_users_is_applied_unchanged(
    crds: ControlPlane, name: str, *, turned: bool
) -> None:
    text = (MANIFESTS / f"{name}.yaml").read_text()
    documents = list(yaml.load_all(text, Loader))
    sent = "\n---\n".join(reversed(text.split("\n---\n"))) if turned else text
    try:
        applied = crds.kubectl("apply", "-f", "-", documents=sent)
        assert applied.returncode == 0, applied.stderr
        for document in documents:
            if "spec" in document:
                assert crds.client.get(path_of(document))["spec"] == document["spec"]
    finally:
        crds.kubectl("delete", "--ignore-not-found", "-f", "-", documents=text)


# What kubectl makes of an unquoted value; None: something that is no text.
SPELT = {
    "24:00": "24:00",
    "2026-11-21": "2026-11-21",
    '"0.9"': "0.9",
    "0.9": None,
    "017": None,
    "1_000": None,
    "on": None,
    "no": None,
}


@pytest.mark.parametrize(("spelt", "meant"), SPELT.items(), ids=SPELT)
@pytest.mark.parametrize("where", ["parameters", "env"])
def test_an_unquoted_value_is_what_was_written_or_is_refused_by_name(
    crds: ControlPlane, namespace: str, where: str, spelt: str, meant: str | None
) -> None:
    values = {"parameters": '"0.9"', "env": '"x"', where: spelt}
    applied = crds.kubectl("apply", "-f", "-", documents=UNQUOTED.format(namespace, **values))
    if meant is None:
        assert applied.returncode == 1
        assert f"{where}[0].value" in applied.stderr
        return
    assert applied.returncode == 0, applied.stderr
    edge = crds.client.get(path_of(service(namespace)))["spec"]["edgeWorker"]
    (container,) = edge["template"]["spec"]["containers"]
    found = {"parameters": edge["hardExampleMining"]["parameters"], "env": container["env"]}
    assert [each["value"] for each in found[where]] == [meant]


def test_a_dry_run_keeps_nothing(client: Client, namespace: str) -> None:
    good = service(namespace)
    assert client.create(good, dry_run=True)["spec"] == good["spec"]
    assert client.find(path_of(good)) is None


def test_an_unknown_field_outside_of_a_template_is_pruned(client: Client, namespace: str) -> None:
    misspelt = service(namespace, edge={"hardExampleMinning": {"name": "IBT"}})
    kept = client.create(misspelt)["spec"]["edgeWorker"]
    assert kept == service(namespace)["spec"]["edgeWorker"]


def test_status_is_written_by_its_subresource_only(client: Client, namespace: str) -> None:
    made = client.create({**service(namespace), "status": {"phase": "Running"}})
    assert "status" not in made
    client.patch(path_of(made), {"status": {"phase": "Running"}})
    assert "status" not in client.get(path_of(made))
    client.patch(f"{path_of(made)}/status", {"status": {"phase": "Running"}, "spec": None})
    written = client.get(path_of(made))
    assert (written["status"]["phase"], written["spec"]) == ("Running", made["spec"])
    assert written["metadata"]["generation"] == 1


# ---- how they are shown ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "group"),
    [("jis", "edgeai.io"), ("ji", "sedna.io"), ("jointinferenceservices", "edgeai.io")],
)
def test_a_short_name_belongs_to_one_group(
    crds: ControlPlane, namespace: str, name: str, group: str
) -> None:
    crds.client.create({**service(namespace), "apiVersion": f"{group}/v1alpha1"})
    got = crds.kubectl("get", name, "-n", namespace, "-o", "name")
    assert got.stdout == f"jointinferenceservice.{group}/digits\n", got.stderr


def test_the_category_lists_all_kinds_of_both_groups(crds: ControlPlane, namespace: str) -> None:
    for group in ("edgeai.io", "sedna.io"):
        crds.client.create(model("small", namespace, group=group))
        crds.client.create({**service(namespace), "apiVersion": f"{group}/v1alpha1"})
    got = crds.kubectl("get", "edgeai", "-n", namespace, "-o", "name")
    assert sorted(got.stdout.split()) == [
        "jointinferenceservice.edgeai.io/digits",
        "jointinferenceservice.sedna.io/digits",
        "model.edgeai.io/small",
        "model.sedna.io/small",
    ], got.stderr


def test_the_printer_columns_show_the_status(crds: ControlPlane, namespace: str) -> None:
    made = crds.client.create(service(namespace))
    status = {
        "phase": "Running",
        "edgeNodes": "edge0",
        "uploadCount": 9,
        "metrics": [{"key": "seen", "value": "40"}, {"key": "hard", "value": "10"}],
    }
    crds.client.patch(f"{path_of(made)}/status", {"status": status})
    header, row = crds.kubectl("get", "jis", "-n", namespace, "-o", "wide").stdout.splitlines()
    assert header.split() == ["NAME", "PHASE", "NODE", "HARD", "UPLOADED", "AGE", "SEEN", "REASON"]
    assert row.split()[:5] == ["digits", "Running", "edge0", "10", "9"]
    assert row.split()[6] == "40"
