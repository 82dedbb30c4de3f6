"""Upgrade, rollback and removal: each changes what the installation made, and nothing else."""

from pathlib import Path
from typing import Any, Final

import pytest

from edgeai.cli.install.record import SECRET
from edgeai.cli.install.rendering import definitions, render
from edgeai.cli.install.values import Values
from globalmanager.ha.elector import LEASE_NAME, LEASES, REPLICA_LABEL
from globalmanager.rootkey import SECRET_NAME
from tests.cluster.client import Client
from tests.cluster.controlplane import CRDS, ControlPlane
from tests.cluster.install.steps import (
    CORE,
    DEPLOYMENT,
    NAMESPACE,
    Run,
    installed,
    path,
    refused,
)
from tests.cluster.samples import model
from tests.edgeai.cli.command import edgeai
from tests.support.waiting import eventually

LEASES_PATH: Final = LEASES.path(NAMESPACE)
pytestmark = pytest.mark.timeout(240)


def test_an_upgrade_changes_and_a_rollback_takes_it_back(
    run: Run, client: Client, tmp_path: Path
) -> None:
    installed(run)
    service = f"{CORE}/services/globalmanager-edge"
    assert "no earlier revision" in refused(run, "rollback")
    done = run(
        "upgrade",
        "--set",
        "nodePort=31234",
        "--set",
        "edgeHost=edge.example",
        "--set",
        "replicas=3",
    )
    assert done.returncode == 0, done.stderr
    assert "the certificate of the edge port has no name edge.example" in done.stderr
    assert client.get(service)["spec"]["ports"][0]["nodePort"] == 31234
    assert client.get(DEPLOYMENT)["spec"]["replicas"] == 3
    for replicas, has_port in ((2, False), (3, True)):  # the second one goes forward again
        back = run("rollback")
        assert back.returncode == 0, back.stderr
        assert client.get(DEPLOYMENT)["spec"]["replicas"] == replicas
        assert (client.find(service) is not None) is has_port
    assert run("upgrade").returncode == 0  # the recorded values
    assert client.get(DEPLOYMENT)["spec"]["replicas"] == 3
    values = tmp_path / "values.yaml"
    values.write_text("replicas: 1\n")
    done = run("upgrade", "--values", str(values))
    assert "values that go back to their defaults: edgeHost, nodePort\n" in done.stderr
    assert client.find(service) is None


def test_an_upgrade_that_never_gets_ready_can_be_taken_back(
    run: Run, plane: ControlPlane, client: Client
) -> None:
    installed(run)
    # No node has so much memory.
    much = (
        "--set",
        "resources.globalmanager.requests.memory=1Ti",
        "--set",
        "resources.globalmanager.limits.memory=1Ti",
    )
    flags = ("--kubeconfig", str(plane.kubeconfig), "--timeout", "20")
    done = edgeai("upgrade", *much, *flags)
    assert done.returncode == 1
    assert "pods are ready: " in done.stderr
    assert "edgeai rollback" in done.stderr.splitlines()[-1]
    assert run("rollback").returncode == 0
    container = client.get(DEPLOYMENT)["spec"]["template"]["spec"]["containers"][0]
    assert container["resources"]["limits"]["memory"] == "1Gi"
    assert "no earlier revision" in refused(run, "rollback")  # nothing worth to go forward to


def test_uninstall_removes_all_but_jobs_and_definitions(run: Run, client: Client) -> None:
    installed(run)
    job = client.create(model("birds", "default"))
    line = refused(run, "uninstall", "--crds")
    assert "1 jobs exist (1 models.edgeai.io)" in line
    assert client.find(DEPLOYMENT) is not None
    done = run("uninstall")
    assert done.returncode == 0, done.stderr
    assert "1 jobs stay (1 models.edgeai.io)" in done.stderr
    assert client.find(f"/api/v1/namespaces/{NAMESPACE}") is None
    left = definitions(Values())
    for each in render(Values()):
        assert client.find(path(each)) is None
    assert all(client.find(path(each)) for each in left)
    assert client.get(
        f"/apis/edgeai.io/v1alpha1/namespaces/default/models/{job['metadata']['name']}"
    )
    assert "there is no namespace" in refused(run, "uninstall")
    installed(run)  # the definitions are its own again
    done = run("uninstall", "--jobs", "--crds")
    assert done.returncode == 0, done.stderr
    assert not any(client.find(path(each)) for each in left)


def test_definitions_stay_until_all_that_their_jobs_have_made_is_gone(
    run: Run, plane: ControlPlane, client: Client
) -> None:
    """Kubernetes never collects what belongs to a job whose definition is gone."""
    installed(run)
    job = client.create(model("birds", "default"))
    owner = {
        "apiVersion": job["apiVersion"],
        "kind": job["kind"],
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
        "controller": True,
    }
    metadata = {
        "name": "birds",
        "labels": {"app.kubernetes.io/managed-by": "edgeai"},
        "ownerReferences": [owner],
        "finalizers": ["example.com/slow"],
    }
    made = [f"/api/v1/namespaces/default/{plural}" for plural in ("secrets", "configmaps")]
    for collection in made:
        client.request("POST", collection, {"metadata": metadata})
    uninstall = ("uninstall", "--jobs", "--crds", "--kubeconfig", str(plane.kubeconfig))
    try:
        for command in (uninstall, uninstall, [each for each in uninstall if each != "--jobs"]):
            done = edgeai(*command, "--timeout", "5")
            assert done.returncode != 0, "the definitions are gone, and two objects stay for ever"
            assert "0 jobs and 2 of their objects" in done.stderr
            assert all(client.find(path(each)) for each in definitions(Values()))
    finally:
        for collection in made:
            client.patch(f"{collection}/birds", {"metadata": {"finalizers": None}})
    done = run("uninstall", "--jobs", "--crds")
    assert done.returncode == 0, done.stderr
    assert not any(client.find(f"{collection}/birds") for collection in made)


def test_a_namespace_that_stays_has_nothing_of_a_global_manager(run: Run, client: Client) -> None:
    """Neither the key of its workers, nor the Lease and the claims of a replica that was killed."""
    client.create_named("Namespace", NAMESPACE)
    installed(run)
    client.request("POST", f"{CORE}/secrets", {"metadata": {"name": SECRET_NAME}})
    metadata = {"name": f"{LEASE_NAME}-killed", "labels": {REPLICA_LABEL: "killed"}}
    lease = client.request("POST", LEASES_PATH, {"metadata": metadata})
    owner = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "name": metadata["name"]}
    owners = [{**owner, "uid": lease["metadata"]["uid"]}]
    claims = {"metadata": {**metadata, "ownerReferences": owners}}
    client.request("POST", f"{CORE}/configmaps", claims)
    done = run("uninstall", "--jobs", "--crds")
    assert done.returncode == 0, done.stderr
    assert f"namespace {NAMESPACE} stays: edgeai install has not made it" in done.stderr
    assert client.find(f"{CORE}/secrets/{SECRET_NAME}") is None
    assert client.find(f"{LEASES_PATH}/{metadata['name']}") is None
    eventually(
        "the end of the claims",
        lambda: client.find(f"{CORE}/configmaps/{metadata['name']}") is None,
    )


DATA: Final[dict[str, Any]] = {
    "configmaps": {"data": {"a": "b"}},
    "persistentvolumeclaims": {
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    },
    "services": {"spec": {"ports": [{"port": 80}]}},
    "pods": {
        "spec": {"containers": [{"name": "main", "image": "any"}], "nodeSelector": {"no": "node"}}
    },
}


@pytest.mark.parametrize("of_others", DATA)
def test_what_others_have_made_stays(
    run: Run, plane: ControlPlane, client: Client, of_others: str
) -> None:
    applied = plane.kubectl("apply", "-f", str(CRDS / "edgeai.io_models.yaml"))
    assert applied.returncode == 0, applied.stderr
    metadata: dict[str, Any] = {"name": "mine", "namespace": NAMESPACE}
    installed(run)
    made = client.request("POST", f"{CORE}/{of_others}", {**DATA[of_others], "metadata": metadata})
    done = run("uninstall", "--jobs", "--crds")
    assert done.returncode == 0, done.stderr
    assert f"namespace {NAMESPACE} stays: it holds {made['kind']} mine\n" in done.stderr
    assert client.find(f"{CORE}/secrets/{SECRET}") is None
    definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/models.edgeai.io"
    assert client.find(definition) is not None
    client.delete(definition)
