"""An edge node that loses the cloud, then its power, and boots without the cloud.

Nodes, containers and kubelets are real, and edgeai is installed as docs/kubeedge.md says, with the
identity `kubeedge`. A power cut kills every process of the node at once, kubelet, containers and
LocalController, and takes /run and all mounts of volumes away. Imitated is what KubeEdge's edged
adds to a kubelet: it starts the pods of the node without the cloud, from what its metamanager has
kept. So the kubelet that boots offline asks tests/cluster/metamanager.py for the same pods, Secrets
and ConfigMaps, and gets no token. edged is the same process once the cloud is back; here another
kubelet takes over, which finds the containers running.

It comes last, because it removes the installation of docs/install.md.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from edgeai.cli.api import Object, path_of
from tests.cluster.kubeedge import files_of
from tests.e2e.containers import IMAGE
from tests.e2e.document import Block, install_on_kubeedge, shell_at
from tests.e2e.service import Service
from tests.e2e.two_jobs import (
    EDGE,
    FILES,
    PATIENCE_S,
    SEES,
    TRAINER,
    Ledger,
    Row,
    check_counts,
    check_end,
    put_files,
    running_job,
    running_service,
    trainer_pod,
)
from tests.support.certificates import Authority
from tests.support.cluster import EDGES, Cluster
from tests.support.waiting import eventually

pytestmark = pytest.mark.timeout(330, func_only=True)
SYSTEM: Final = "edgeai-system"
RATE_PER_S: Final = 10.0
MORE: Final = 30
"""Images that the edge worker counts without the cloud, before the power cut and after it."""
ROUNDS: Final = 120
"""More than there are until the node has its cut: each takes a second at least."""
TOKEN: Final = "kubernetes.io/service-account-token"


class Outage(NamedTuple):
    """What was seen of the two workers on the edge node.

    Args:
    pods: by worker, before the cut
    dark: the ledger while nothing runs on the node
    offline: after the boot, without the cloud
    starts_offline: of the pod with a token, until then
    """

    pods: dict[str, Object]
    dark: dict[str, Row]
    offline: dict[str, Row]
    starts_offline: int


# ---- installation --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kubeedge(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """The cluster after docs/kubeedge.md, whose edge nodes have the files of edgecore."""
    directory = tmp_path_factory.mktemp("kubeedge")
    authority = Authority(directory, subject="/CN=KubeEdge")
    for name in EDGES:
        for path, content in files_of(name, authority).items():
            write = f"mkdir -p {Path(path).parent} && cat > {path}"
            cluster.nodes[name].machine.run("sh", "-c", write, stdin=content)
    if cluster.client.find(f"/api/v1/namespaces/{SYSTEM}"):
        remove(cluster, tmp_path_factory.mktemp("removal"))
    install_on_kubeedge(cluster, tmp_path_factory.mktemp("page"))
    return cluster


def remove(cluster: Cluster, directory: Path) -> None:
    shell = shell_at(cluster, directory)
    shell.start()
    try:
        shell.run(Block(0, "helm uninstall edgeai --namespace edgeai-system --wait\n"))
        shell.run(Block(0, "kubectl delete namespace edgeai-system\n"))
    finally:
        shell.stop()


@pytest.fixture(scope="module")
def files(kubeedge: Cluster, tmp_path_factory: pytest.TempPathFactory) -> None:
    put_files(kubeedge, tmp_path_factory.mktemp("files"))


# ---- the two jobs --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def service(kubeedge: Cluster, job: Object) -> Iterator[Service]:
    """Its stream starts after the training, and is shorter."""
    with running_service(kubeedge, rate_per_s=RATE_PER_S) as service:
        yield service


@pytest.fixture(scope="module")
def job(kubeedge: Cluster, files: None) -> Iterator[Object]:
    with running_job(kubeedge, rounds=ROUNDS) as job:
        yield job


@pytest.fixture(scope="module")
def with_token(kubeedge: Cluster, files: None) -> Iterator[Object]:
    """A pod with a token of its ServiceAccount, which writes a line at each start."""
    command = ["sh", "-c", "echo started >> /files/starts; exec sleep infinity"]
    mount = {"name": "files", "mountPath": "/files"}
    container = {"name": "main", "image": IMAGE, "command": command, "volumeMounts": [mount]}
    spec = {
        "nodeName": EDGE,
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
        "volumes": [{"name": "files", "hostPath": {"path": FILES}}],
    }
    metadata = {"name": "with-token", "namespace": "default"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    pod = kubeedge.client.create(pod)
    eventually("its first start", lambda: starts(kubeedge) == 1)
    yield pod
    kubeedge.client.delete(path_of(pod))


def starts(cluster: Cluster) -> int:
    file = Path(f"/proc/{cluster.nodes[EDGE].machine.pid}/root{FILES}/starts")
    return len(file.read_text().splitlines()) if file.exists() else 0


# ---- the outage ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def outage(
    kubeedge: Cluster,
    with_token: Object,
    service: Service,
    tmp_path_factory: pytest.TempPathFactory,
) -> Outage:
    """What was seen, once the node has contact again: the cloud goes, the power goes, the power is
    back, and then the cloud.
    """
    node = kubeedge.nodes[EDGE]
    ledger = Ledger(node.machine.pid, tmp_path_factory.mktemp("ledger"))
    service.wait_for_uploads()
    pods = {SEES: service.edge_pod(), TRAINER: trainer_pod(kubeedge)}
    objects = objects_on(kubeedge, EDGE)
    kubeedge.cut_off(EDGE)
    at_cut = ledger.rows()
    number = at_cut[SEES].info["seen"] + MORE
    ledger.wait_for("images without the cloud", lambda rows: rows[SEES].info["seen"] >= number)
    kubeedge.lose_power(EDGE)
    dark = ledger.rows()
    node.boot_offline(objects)
    try:
        offline = ledger.wait_for(
            "both workers after the boot",
            lambda rows: (
                rows[SEES].info["seen"] >= dark[SEES].info["seen"] + MORE
                and rows[TRAINER].process != dark[TRAINER].process
            ),
        )
        starts_offline = starts(kubeedge)
    finally:
        kubeedge.reconnect(EDGE)
        node.reach_cloud()
    kubeedge.wait_until_ready(EDGE)
    return Outage(pods, dark, offline, starts_offline)


def objects_on(cluster: Cluster, node: str) -> dict[str, list[Object]]:
    """What edgecore keeps of the API for its node: the Node, its pods, what these name, Services.

    No token of a ServiceAccount: edgecore deletes them when it starts offline.
    """
    list_ = cluster.client.list
    pods = list_(f"/api/v1/pods?fieldSelector=spec.nodeName={node}")
    names = {(pod["metadata"]["namespace"], name) for pod in pods for name in names_in(pod["spec"])}
    objects = {
        "Pod": pods,
        "Node": [cluster.client.get(f"/api/v1/nodes/{node}")],
        "Service": list_("/api/v1/services"),
        "CSINode": [cluster.client.get(f"/apis/storage.k8s.io/v1/csinodes/{node}")],
        **{
            kind: [
                each
                for each in list_(f"/api/v1/{kind.lower()}s")
                if (each["metadata"]["namespace"], each["metadata"]["name"]) in names
                and each.get("type") != TOKEN
            ]
            for kind in ("Secret", "ConfigMap")
        },
    }
    return {
        f"{kind.lower()}s": [{"apiVersion": "v1", "kind": kind, **each} for each in items]
        for kind, items in objects.items()
    }


def names_in(value: Any) -> Iterator[str]:
    """All names of Secrets and ConfigMaps, and a few others."""
    if isinstance(value, dict):
        yield from (value[key] for key in ("name", "secretName") if isinstance(value.get(key), str))
    children = value.values() if isinstance(value, dict) else value
    for child in children if isinstance(value, dict | list) else ():
        yield from names_in(child)


# ---- what holds ----------------------------------------------------------------------------------


def test_both_workers_run_without_the_cloud(outage: Outage) -> None:
    for worker in (SEES, TRAINER):
        assert outage.offline[worker].process != outage.dark[worker].process
        assert outage.offline[worker].status == "running"
    assert outage.offline[SEES].info["seen"] >= outage.dark[SEES].info["seen"] + MORE


def test_a_pod_with_a_token_starts_once_the_cloud_is_back(
    kubeedge: Cluster, outage: Outage
) -> None:
    assert outage.starts_offline == 1
    eventually("its second start", lambda: starts(kubeedge) == 2, timeout_s=PATIENCE_S)


def test_their_pods_were_restarted_and_not_replaced(
    kubeedge: Cluster, service: Service, outage: Outage
) -> None:
    def restarted() -> bool:
        pods = {SEES: service.edge_pod(), TRAINER: trainer_pod(kubeedge)}
        for worker, pod in pods.items():
            assert pod["metadata"]["uid"] == outage.pods[worker]["metadata"]["uid"]
            (container,) = pod["status"]["containerStatuses"]
            assert container["restartCount"] == 1, f"{worker}: {container}"
        return True

    eventually("the kubelet's word", restarted)


def test_the_counts_of_before_and_after_are_delivered_exactly(
    service: Service, outage: Outage
) -> None:
    """What the ledger had in the dark, and what the process after the boot has counted."""
    check_counts(service, outage.dark[SEES])


def test_the_training_goes_on_to_its_end(kubeedge: Cluster, job: Object, outage: Outage) -> None:
    check_end(kubeedge, job, rounds=ROUNDS)
