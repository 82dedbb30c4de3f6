"""A tenant that floods a small API server: the GlobalManager has a share of its own there."""

import secrets
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Final

import pytest

from edgeai.cli.api import ApiError, Object
from tests.cluster import binaries, helm
from tests.cluster.controlplane import AUDITED, ControlPlane
from tests.cluster.test_drift import Webhook
from tests.cluster.training import REPLICAS, names, pytorch_job
from tests.support.client import Client
from tests.support.manager import SYSTEM_NAMESPACE, GlobalManager
from tests.support.waiting import eventually

TENANT: Final = "tenant"
ACCOUNTS: Final = tuple(f"system:serviceaccount:{TENANT}:a{number}" for number in range(16))
THREADS: Final = 64
SLOW_S: Final = 8.0
"""How long each request of the flood takes a seat of the server."""
FLOOD_S: Final = 20.0
PROMPT_S: Final = 2.0
LEASES: Final = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM_NAMESPACE}/leases"
KINDS: Final = (
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "FlowSchema",
    "PriorityLevelConfiguration",
)


class SlowWebhook(Webhook):
    """Of each ConfigMap of a tenant."""

    def configuration(self, namespace: str) -> Object:
        made = super().configuration(namespace)
        (hook,) = made["webhooks"]
        (rule,) = hook["rules"]
        rule |= {"apiGroups": [""], "resources": ["configmaps"]}
        return made

    def _admit(self, review: Object) -> Object:
        time.sleep(SLOW_S)
        response = {"uid": review["request"]["uid"], "allowed": True}
        return {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    directory = tmp_path / "controlplane"
    directory.mkdir()
    group = "system:serviceaccounts"
    users = {AUDITED: group, **dict.fromkeys(ACCOUNTS, f"{group},{group}:{TENANT}")}
    flags = ("--max-requests-inflight=4", "--max-mutating-requests-inflight=2")
    plane = ControlPlane(binaries.obtain(), directory, users=users, api_server_flags=flags)
    with plane.running():
        plane.install_crds()
        yield plane


@pytest.fixture
def installed(plane: ControlPlane) -> ControlPlane:
    """With the rights and the share of deploy/, and a tenant whose webhook is slow."""
    plane.client.create_named("Namespace", SYSTEM_NAMESPACE)
    documents = helm.rendered()
    chosen = [document for document in documents if document["kind"] in KINDS]
    applied = plane.kubectl("apply", "-f", "-", documents=chosen)
    assert applied.returncode == 0, applied.stderr
    return plane


@pytest.fixture
def webhook(plane: ControlPlane, tmp_path: Path) -> Iterator[None]:
    metadata = {"name": TENANT, "labels": {"mutated": TENANT}}
    plane.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    binding = ("create", "rolebinding", "all", "--clusterrole=admin", "-n", TENANT)
    done = plane.kubectl(*binding, f"--group=system:serviceaccounts:{TENANT}")
    assert done.returncode == 0, done.stderr
    directory = tmp_path / "webhook"
    directory.mkdir()
    made = SlowWebhook(directory)
    applied = plane.kubectl("apply", "-f", "-", documents=[made.configuration(TENANT)])
    assert applied.returncode == 0, applied.stderr
    yield
    made.stop()


@contextmanager
def flood(plane: ControlPlane) -> Iterator[None]:
    """Until the end of the `with` body, all accounts of the tenant create ConfigMaps."""
    stopping = threading.Event()

    def run(number: int) -> None:
        client = plane.client_of(ACCOUNTS[number % len(ACCOUNTS)])
        while not stopping.is_set():
            metadata = {"name": secrets.token_hex(8), "namespace": TENANT}
            try:
                client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
            except (ApiError, OSError, HTTPException):
                time.sleep(0.1)

    with ThreadPoolExecutor(THREADS) as pool:
        for number in range(THREADS):
            pool.submit(run, number)
        try:
            time.sleep(SLOW_S / 2)  # until each seat is taken
            yield
        finally:
            stopping.set()


def lease_of(client: Client) -> Object:
    (lease,) = [
        one for one in client.list(LEASES) if one["spec"].get("leaseTransitions") is not None
    ]
    return lease


@pytest.mark.usefixtures("webhook")
def test_a_flood_of_a_tenant_delays_neither_lease_nor_watches(
    installed: ControlPlane, tmp_path: Path
) -> None:
    kubeconfig, directory = tmp_path / "kubeconfig", tmp_path / "globalmanager"
    installed.write_kubeconfig(kubeconfig, user=AUDITED)
    directory.mkdir()
    manager = GlobalManager(kubeconfig=kubeconfig, directory=directory)
    account, admin = installed.client_of(AUDITED), installed.client
    with manager.running():
        before = lease_of(admin)
        with flood(installed):
            slowest_s = 0.0
            end = time.monotonic() + FLOOD_S
            while time.monotonic() < end:
                start = time.monotonic()
                account.list(LEASES)
                slowest_s = max(slowest_s, time.monotonic() - start)
                time.sleep(0.1)
            assert slowest_s < PROMPT_S
            admin.create(pytorch_job("default"))
            eventually(
                "the pods", lambda: names(admin, "default") == REPLICAS, timeout_s=5 * PROMPT_S
            )
            lease = lease_of(admin)
    assert lease["spec"]["leaseTransitions"] == before["spec"]["leaseTransitions"]
    assert lease["spec"]["renewTime"] > before["spec"]["renewTime"]
