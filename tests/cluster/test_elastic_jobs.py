"""TrainingJobs on a real control plane. The tests say what becomes of the pods."""

import base64
import copy
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from edgeai.cli.api import Object
from tests.cluster.controlplane import ControlPlane
from tests.cluster.elastic import (
    LAUNCHER,
    evict,
    hosts,
    path_in,
    training_job,
    wait_for_phase,
    worker,
)
from tests.cluster.training import NODE, end, names, uids
from tests.support.client import Client
from tests.support.manager import GlobalManager
from tests.support.waiting import eventually

SUSPENDED: Final = "job-supervisor.kube-ai.io/job-suspended"
RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"


def children(client: Client, namespace: str) -> dict[str, list[str]]:
    """Plural -> names of what a job is made of."""
    core, rbac = f"/api/v1/namespaces/{namespace}", f"{RBAC}/namespaces/{namespace}"
    paths = {
        **{plural: f"{core}/{plural}" for plural in ("pods", "services", "configmaps", "secrets")},
        **{plural: f"{rbac}/{plural}" for plural in ("roles", "rolebindings")},
        "serviceaccounts": f"{core}/serviceaccounts",
    }
    found = {plural: client.list(path) for plural, path in paths.items()}
    return {
        plural: sorted(
            each["metadata"]["name"]
            for each in listed
            if "elastic" in each["metadata"]["name"]
            and each.get("type") != "kubernetes.io/service-account-token"
        )
        for plural, listed in found.items()
    }


def test_a_job_lives_from_its_workers_to_the_end_of_its_launcher(
    client: Client,
    control_plane: ControlPlane,
    manager: GlobalManager,
    namespace: str,
    kubelet: None,
    tmp_path: Path,
) -> None:
    client.create(training_job(namespace))
    job = wait_for_phase(client, namespace, "Running")
    assert [each["type"] for each in job["status"]["conditions"]] == [
        "Created",
        "WorkersCreated",
        "WorkersReady",
        "LauncherCreated",
        "Running",
    ]
    workers = [worker(0), worker(1)]
    assert children(client, namespace) == {
        "pods": [LAUNCHER, *workers],
        "services": workers,
        "configmaps": ["elastic-config"],
        "secrets": ["elastic"],
        "roles": [LAUNCHER],
        "rolebindings": [LAUNCHER],
        "serviceaccounts": [LAUNCHER],
    }
    assert hosts(client, namespace) == [f"{name}:1" for name in workers]
    secret = client.get(f"/api/v1/namespaces/{namespace}/secrets/elastic")
    for line in manager.logs().splitlines():
        assert secret["data"]["id_rsa"][:80] not in line
    assert public_key(secret, tmp_path) == decoded(secret, "id_rsa.pub").split()[:2]

    end(client, namespace, LAUNCHER, 0)
    wait_for_phase(client, namespace, "Succeeded")
    eventually("the clean-up", lambda: children(client, namespace)["pods"] == [LAUNCHER])
    left = {key: found for key, found in children(client, namespace).items() if found}
    assert left == {"pods": [LAUNCHER]}
    shown = control_plane.kubectl("get", "trainingjob", "--namespace", namespace).stdout
    assert [line.split()[:2] for line in shown.splitlines()] == [
        ["NAME", "PHASE"],
        ["elastic", "Succeeded"],
    ]


def decoded(secret: Object, file: str) -> str:
    return base64.b64decode(secret["data"][file]).decode()


def public_key(secret: Object, directory: Path) -> list[str]:
    """What OpenSSH computes from the private key: type and key."""
    file = directory / "id_rsa"
    file.touch(mode=0o600)
    file.write_text(decoded(secret, "id_rsa"))
    done = subprocess.run(
        ["ssh-keygen", "-y", "-f", str(file)], capture_output=True, text=True, check=True
    )
    return done.stdout.split()[:2]


def test_an_evicted_and_a_deleted_worker_are_replaced_under_new_names(
    client: Client, manager: GlobalManager, namespace: str, kubelet: None
) -> None:
    client.create(training_job(namespace, worker={"minReplicas": 1}))
    wait_for_phase(client, namespace, "Running")
    eventually("both hosts", lambda: len(hosts(client, namespace)) == 2)
    before = uids(client, namespace, "pods")
    evict(client, namespace, worker(1))
    eventually("the new worker", lambda: worker(2) in names(client, namespace))
    client.delete(f"/api/v1/namespaces/{namespace}/pods/{worker(0)}")
    expected = [LAUNCHER, worker(2), worker(3)]
    eventually("the second new worker", lambda: names(client, namespace) == expected)
    job = wait_for_phase(client, namespace, "Running")
    assert job["status"]["targetWorkers"] == expected[1:]
    assert uids(client, namespace, "pods")[LAUNCHER] == before[LAUNCHER]
    eventually(
        "the new workers in the list",
        lambda: hosts(client, namespace) == [f"{name}:1" for name in expected[1:]],
    )
    told = client.get(f"/api/v1/namespaces/{namespace}/pods/{LAUNCHER}")["metadata"]["annotations"]
    assert "edgeai.io/host-list" in told


@pytest.mark.parametrize(("code", "is_replaced"), [(137, True), (1, False)])
def test_a_sidecar_of_a_worker_does_not_decide_whether_it_is_replaced(
    client: Client,
    manager: GlobalManager,
    namespace: str,
    kubelet: None,
    code: int,
    is_replaced: bool,
) -> None:
    """The sidecar ends with 143, a signal, when its node stops it."""
    job = training_job(namespace, worker={"minReplicas": 1})
    template = copy.deepcopy(job["spec"]["etReplicaSpecs"]["worker"]["template"])
    sidecar = {"name": "proxy", "image": "edgeai/test", "restartPolicy": "Always"}
    template["spec"]["initContainers"] = [sidecar]
    job["spec"]["etReplicaSpecs"]["worker"]["template"] = template
    client.create(job)
    wait_for_phase(client, namespace, "Running")
    end(client, namespace, worker(0), code)

    expected = [worker(1), *([worker(2)] if is_replaced else [])]
    eventually(
        "the hosts that remain",
        lambda: hosts(client, namespace) == [f"{name}:1" for name in expected],
    )
    assert (worker(2) in names(client, namespace)) == is_replaced


def test_a_failed_launcher_is_started_again_and_a_lost_one_too(
    client: Client, manager: GlobalManager, namespace: str, kubelet: None
) -> None:
    client.create(training_job(namespace, restartPolicy="OnFailure"))
    wait_for_phase(client, namespace, "Running")
    pod = f"/api/v1/namespaces/{namespace}/pods/{LAUNCHER}"
    losses: list[Callable[[], object]] = [
        lambda: end(client, namespace, LAUNCHER, 1),
        lambda: client.delete(pod),
    ]
    for number, lose in enumerate(losses, start=1):
        before = uids(client, namespace, "pods")[LAUNCHER]
        lose()

        def runs_anew(before: str = before, number: int = number) -> bool:
            job = client.get(path_in(namespace))["status"]
            assert (job["phase"], job.get("restartCount")) == ("Running", number), job
            return uids(client, namespace, "pods").get(LAUNCHER) not in (None, before)

        eventually(f"start {number}", runs_anew)


def test_suspend_and_resume(
    client: Client, manager: GlobalManager, namespace: str, kubelet: None
) -> None:
    client.create(training_job(namespace))
    wait_for_phase(client, namespace, "Running")
    client.patch(path_in(namespace), {"metadata": {"annotations": {SUSPENDED: "true"}}})
    wait_for_phase(client, namespace, "Suspended")
    eventually("the end of all", lambda: not any(children(client, namespace).values()))
    client.patch(path_in(namespace), {"metadata": {"annotations": {SUSPENDED: None}}})
    job = wait_for_phase(client, namespace, "Running")
    assert job["status"]["targetWorkers"] == [worker(0), worker(1)]


def test_the_role_of_the_launcher_names_the_workers_alone(
    client: Client,
    control_plane: ControlPlane,
    manager: GlobalManager,
    namespace: str,
    kubelet: None,
) -> None:
    client.create(training_job(namespace, launcherAttachMode="kubexec", worker={"replicas": 12}))
    wait_for_phase(client, namespace, "Running")
    account = f"system:serviceaccount:{namespace}:{LAUNCHER}"
    others = {LAUNCHER: "no", worker(12): "no", worker(1): "yes", worker(11): "yes"}
    for pod, expected in others.items():
        asked = control_plane.kubectl(
            *("auth", "can-i", "create", f"pods/{pod}", "--subresource=exec"),
            *("--as", account, "--namespace", namespace),
        )
        assert asked.stdout.strip() == expected, pod
    assert "elastic" not in children(client, namespace)["secrets"]


def test_names_that_are_taken_are_told_and_free_names_let_the_job_go_on(
    client: Client, manager: GlobalManager, namespace: str, kubelet: None
) -> None:
    metadata = {"name": "elastic", "namespace": namespace}
    client.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
    client.create(training_job(namespace))

    def is_told() -> bool:
        listed = client.get(path_in(namespace)).get("status", {}).get("conditions", [])
        stalled = [each for each in listed if each["type"] == "Stalled"]
        assert stalled, f"{listed}"
        assert stalled[0]["reason"] == "NameConflict"
        return "secrets" in stalled[0]["message"]

    eventually("the condition", is_told)
    client.delete(f"/api/v1/namespaces/{namespace}/secrets/elastic")
    wait_for_phase(client, namespace, "Running")


def test_a_pod_with_copied_labels_is_left_alone(
    client: Client, manager: GlobalManager, namespace: str, kubelet: None
) -> None:
    client.create(training_job(namespace))
    wait_for_phase(client, namespace, "Running")
    pod = client.get(f"/api/v1/namespaces/{namespace}/pods/{worker(1)}")
    labels = pod["metadata"]["labels"]
    other = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": worker(7), "namespace": namespace, "labels": labels},
        "spec": {"nodeName": NODE, "containers": [{"name": "main", "image": "edgeai/test"}]},
    }
    client.create(other)
    end(client, namespace, LAUNCHER, 0)
    wait_for_phase(client, namespace, "Succeeded")
    expected = [LAUNCHER, worker(7)]
    eventually("the clean-up", lambda: names(client, namespace) == expected)


def test_jobs_of_one_name_in_two_namespaces_have_nothing_to_do_with_each_other(
    client: Client, manager: GlobalManager, namespace: str, kubelet: None
) -> None:
    metadata = {"generateName": "test-"}
    made = client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    other = made["metadata"]["name"]
    try:
        client.create(training_job(other, launcherAttachMode="kubexec"))
        client.create(training_job(namespace, launcherAttachMode="kubexec"))
        wait_for_phase(client, namespace, "Running")
        wait_for_phase(client, other, "WorkersCreated")  # nobody runs its pods
        before = uids(client, other, "pods")
        end(client, namespace, LAUNCHER, 0)
        wait_for_phase(client, namespace, "Succeeded")
        eventually("the clean-up", lambda: names(client, namespace) == [LAUNCHER])
        assert uids(client, other, "pods") == before
        assert client.get(path_in(other))["status"]["phase"] == "WorkersCreated"
    finally:
        client.delete(f"/api/v1/namespaces/{other}")
        client.request("DELETE", f"/api/v1/namespaces/{other}/pods?gracePeriodSeconds=0")


def test_a_job_made_anew_under_its_name_has_pods_of_its_own(
    client: Client, manager: GlobalManager, namespace: str, kubelet: None
) -> None:
    client.create(training_job(namespace))
    wait_for_phase(client, namespace, "Running")
    before = uids(client, namespace, "pods")
    client.delete(path_in(namespace))
    eventually("the end of the job", lambda: client.find(path_in(namespace)) is None)
    client.create(training_job(namespace))
    wait_for_phase(client, namespace, "Running")
    after = uids(client, namespace, "pods")
    assert after.keys() == before.keys()
    assert not set(after.values()) & set(before.values())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("slotsPerWorker", 0),
        ("launcherAttachMode", "rsh"),
        ("cleanPodPolicy", "Some"),
        ("restartPolicy", "Always"),
        ("backoffLimit", -1),
    ],
)
def test_the_api_server_refuses_a_wrong_field(
    client: Client, control_plane: ControlPlane, namespace: str, field: str, value: object
) -> None:
    job = training_job(namespace)
    job["spec"][field] = value
    done = control_plane.kubectl("apply", "-f", "-", documents=[job])
    assert done.returncode != 0
    assert f"spec.{field}" in done.stderr
