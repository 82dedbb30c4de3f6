"""Jobs that queue through a real Kueue: admission, eviction, priority, a silent edge."""

import re
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from edgeai.cli.api import Object, path_of
from tests.cluster import binaries
from tests.cluster.binaries import Unavailable
from tests.cluster.controlplane import ControlPlane
from tests.cluster.edge import Edge
from tests.cluster.kueue import (
    OLDEST_MINOR,
    PRIORITY,
    QUEUE,
    Kueue,
    cluster_queue,
    flavor,
    local_queue,
    priority,
)
from tests.cluster.lone_node import LoneNode
from tests.cluster.samples import model
from tests.cluster.test_federated_learning import dataset
from tests.cluster.training import end, names
from tests.globalmanager.kinds.edge.samples import federated_learning_spec
from tests.support.client import Client
from tests.support.manager import GlobalManager
from tests.support.waiting import eventually

PREBUILT: Final = "kueue.x-k8s.io/prebuilt-workload-name"
WORKLOADS: Final = "/apis/kueue.x-k8s.io/v1beta2"
FEDERATION: Final = ("aggregation", "train-0", "train-1")
ELASTIC: Final = ("launcher", "worker-0", "worker-1")
PAGE: Final = Path(__file__).parents[2] / "docs" / "kueue.md"
BLOCK: Final = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
GROUP: Final = "test.edgeai.io/group"
EDGE: Final = "edge0"

pytestmark = pytest.mark.timeout(300)


# ---- the cluster ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """One that watches nodes, for a GlobalManager."""
    if int(binaries.tested_minor().partition(".")[2]) < OLDEST_MINOR:
        pytest.skip(f"Kueue supports Kubernetes 1.{OLDEST_MINOR} and newer")
    directory = tmp_path_factory.mktemp("controlplane")
    control_plane = ControlPlane(binaries.obtain(), directory, watches_nodes=True)
    with control_plane.running():
        control_plane.prepare()
        yield control_plane


@pytest.fixture(scope="module")
def kueue(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kueue]:
    try:
        kueue = Kueue(control_plane, tmp_path_factory.mktemp("kueue"))
    except Unavailable as error:
        pytest.skip(str(error))
    with kueue.running():
        yield kueue


@pytest.fixture(scope="module")
def client(control_plane: ControlPlane) -> Client:
    return control_plane.client


@pytest.fixture(scope="module")
def manager(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GlobalManager]:
    """The GlobalManager as a process, ready."""
    directory = tmp_path_factory.mktemp("globalmanager")
    with GlobalManager(kubeconfig=control_plane.kubeconfig, directory=directory).running() as made:
        yield made


class Queue:
    """A queue of one namespace with a quota of three processors, and the jobs in it."""

    def __init__(self, kueue: Kueue, client: Client, namespace: str) -> None:
        self.client, self.namespace = client, namespace
        self._path = f"/apis/kueue.x-k8s.io/v1beta2/clusterqueues/{namespace}"
        kueue.apply(
            [
                flavor(namespace, **{GROUP: namespace}),
                cluster_queue(
                    namespace,
                    flavor=namespace,
                    cpu=3,
                    preemption={"withinClusterQueue": "LowerPriority"},
                ),
                local_queue(namespace, "team", cluster_queue=namespace),
            ]
        )

    def remove(self) -> None:
        self.client.delete(self._path)

    def submit(
        self, name: str = "mnist", *, kind: str = "PyTorchJob", workers: int = 2, priority: str = ""
    ) -> "QueuedJob":
        """A job with a master or chief, and workers. Each takes a processor."""
        job = QueuedJob(self, name, kind)
        labels = {QUEUE: "team"} | ({PRIORITY: priority} if priority else {})
        self.client.create(job.manifest(workers, labels))
        return job

    def used(self) -> str:
        """Processors of the quota that admitted jobs have."""
        status = self.client.get(self._path).get("status", {})
        (usage,) = status["flavorsReservation"]
        (cpu,) = usage["resources"]
        return str(cpu["total"])

    def wait_for_use(self, cpu: int) -> None:
        def check() -> bool:
            assert self.used() == str(cpu), self.used()
            return True

        eventually(f"{cpu} processors in use", check)


class QueuedJob:
    """A PyTorchJob or TFJob in a queue."""

    def __init__(self, queue: Queue, name: str, kind: str) -> None:
        self._client, self._namespace = queue.client, queue.namespace
        self._name, self._kind = name, kind
        self.path = f"/apis/kubeflow.org/v1/namespaces/{self._namespace}/{kind.lower()}s/{name}"
        self.first = "Master" if kind == "PyTorchJob" else "Chief"
        self.replicas = [
            f"{name}-{self.first.lower()}-0",
            f"{name}-worker-0",
            f"{name}-worker-1",
        ]

    def manifest(self, workers: int, labels: dict[str, str]) -> Object:
        container = {
            "name": "pytorch" if self._kind == "PyTorchJob" else "tensorflow",
            "image": "edgeai/test",
            "resources": {"requests": {"cpu": "1"}},
        }
        template = {"spec": {"containers": [container]}}
        replicas: Object = {
            self.first: {"template": template},
            "Worker": {"replicas": workers, "template": template},
        }
        field = "pytorchReplicaSpecs" if self._kind == "PyTorchJob" else "tfReplicaSpecs"
        return {
            "apiVersion": "kubeflow.org/v1",
            "kind": self._kind,
            "metadata": {"name": self._name, "namespace": self._namespace, "labels": labels},
            # The pods of an ended job would keep their room without their quota.
            "spec": {field: replicas, "runPolicy": {"cleanPodPolicy": "All"}},
        }

    def get(self) -> Object:
        return self._client.get(self.path)

    def wait_for(self, state: str) -> Object:
        """Until the last condition has this type."""

        def check() -> Object:
            job = self.get()
            listed = job.get("status", {}).get("conditions") or [{}]
            assert (listed[-1].get("type"), listed[-1].get("status")) == (state, "True"), (
                f"{listed}, {self.workload().get('status')}"
            )
            return job

        return eventually(f"{self._name} {state}", check, timeout_s=90)

    def workload(self) -> Object:
        """The Workload that Kueue has made of the job."""
        path = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{self._namespace}/workloads"
        for workload in self._client.list(path):
            owners = workload["metadata"].get("ownerReferences", ())
            if self._name in {owner["name"] for owner in owners}:
                return workload
        return {}

    def wait_for_workload(self, condition: str, truth: str = "True") -> Object:
        def check() -> Object:
            workload = self.workload()
            found = {
                one["type"]: one["status"]
                for one in workload.get("status", {}).get("conditions", ())
            }
            assert found.get(condition) == truth, f"{found}"
            return workload

        return eventually(f"{condition} {truth} of the workload", check)

    def wait_until(self, check: Callable[[Object], object]) -> Object:
        """Until the check of .status is true."""

        def is_so() -> Object:
            job = self.get()
            assert check(job.get("status", {})), f"{job.get('status')}"
            return job

        return eventually("a status", is_so, timeout_s=90)

    def set_active(self, is_active: bool) -> None:
        """An administrator evicts the job, or lets it queue again."""
        name = self.workload()["metadata"]["name"]
        path = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{self._namespace}/workloads/{name}"
        self._client.patch(path, {"spec": {"active": is_active}})

    def template(self) -> Object:
        """spec of the pod template of the workers."""
        field = "pytorchReplicaSpecs" if self._kind == "PyTorchJob" else "tfReplicaSpecs"
        spec: Object = self.get()["spec"][field]["Worker"]["template"]["spec"]
        return spec

    def node_selectors(self) -> list[Object]:
        path = f"/api/v1/namespaces/{self._namespace}/pods"
        return [self._client.get(f"{path}/{name}")["spec"]["nodeSelector"] for name in self.pods()]

    def pods(self) -> list[str]:
        found = names(self._client, self._namespace)
        return [name for name in found if name.startswith(f"{self._name}-")]

    def succeed(self) -> None:
        end(self._client, self._namespace, self.replicas[0], 0)


@pytest.fixture
def queue(kueue: Kueue, client: Client, manager: GlobalManager, namespace: str) -> Iterator[Queue]:
    queue = Queue(kueue, client, namespace)
    yield queue
    queue.remove()


@pytest.fixture
def node(client: Client, queue: Queue, namespace: str) -> Iterator[LoneNode]:
    """A node of the queue's flavor."""
    node = LoneNode(client, f"node-{namespace}", namespace, {GROUP: namespace})
    yield node
    node.remove()


# ---- admission -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["PyTorchJob", "TFJob"])
def test_a_job_is_admitted_runs_and_gives_its_quota_back(
    queue: Queue, node: LoneNode, kind: str
) -> None:
    job = queue.submit(kind=kind)
    job.wait_for("Running")
    assert job.get()["spec"]["runPolicy"]["suspend"] is False
    assert job.pods() == job.replicas
    queue.wait_for_use(3)
    job.succeed()
    job.wait_for("Succeeded")
    job.wait_for_workload("Finished")
    queue.wait_for_use(0)


def test_a_job_waits_suspended_until_another_one_ends(queue: Queue, node: LoneNode) -> None:
    first = queue.submit("first")
    first.wait_for("Running")
    second = queue.submit("second")
    second.wait_for("Suspended")
    second.wait_for_workload("QuotaReserved", "False")
    assert second.pods() == []
    assert "startTime" not in second.get()["status"]
    first.succeed()
    second.wait_for("Running")
    assert second.get()["status"]["startTime"]


def test_a_job_that_is_larger_than_the_quota_never_starts_in_part(
    queue: Queue, node: LoneNode
) -> None:
    """Kueue admits the kinds of Kubeflow as a whole, also an elastic job."""
    large = queue.submit("large", workers=3)
    large.wait_for("Suspended")
    message = condition(large.wait_for_workload("QuotaReserved", "False"), "QuotaReserved")
    assert "insufficient quota" in message["message"], message
    assert (large.pods(), queue.used()) == ([], "0")
    small = queue.submit("small")
    small.wait_for("Running")


# ---- eviction ------------------------------------------------------------------------------------


def test_an_evicted_job_gives_all_back_and_is_admitted_again(queue: Queue, node: LoneNode) -> None:
    job = queue.submit()
    first = job.wait_for("Running")
    assert job.node_selectors() == [{GROUP: queue.namespace}] * 3, "of the flavor"
    job.set_active(False)
    job.wait_for("Suspended")
    queue.wait_for_use(0)
    eventually("the end of all pods", lambda: not job.pods())
    assert job.template().get("nodeSelector", {}) == {}
    job.set_active(True)
    again = job.wait_for("Running")
    assert again["status"]["startTime"] > first["status"]["startTime"]
    assert job.node_selectors() == [{GROUP: queue.namespace}] * 3


def test_a_job_of_higher_priority_goes_first(
    kueue: Kueue, client: Client, queue: Queue, node: LoneNode
) -> None:
    kueue.apply([priority("urgent", 1000)])
    low = queue.submit("low")
    low.wait_for("Running")
    high = queue.submit("high", priority="urgent")
    high.wait_for("Running")
    low.wait_for("Suspended")
    assert condition(low.wait_for_workload("Evicted"), "Evicted")["reason"] == "Preempted"
    eventually("the end of the pods of low", lambda: not low.pods())
    high.succeed()
    low.wait_for("Running")
    assert "restarts" not in low.get()["status"]


# ---- an edge that is out of contact --------------------------------------------------------------


def test_a_replica_on_an_edge_out_of_contact_keeps_its_quota(
    client: Client, manager: GlobalManager, kueue: Kueue, queue: Queue, tmp_path: Path
) -> None:
    """Its process runs. The job is evicted before anybody has noticed that the line is down."""
    kueue.apply([priority("urgent", 1000)])
    node = LoneNode(client, EDGE, queue.namespace, {GROUP: queue.namespace})
    with ExitStack() as stack:
        stack.callback(node.remove)
        edge = Edge(EDGE, port=manager.edge_port, directory=tmp_path)
        stack.enter_context(edge.running())
        job = queue.submit()
        job.wait_for("Running")
        eventually("a session", lambda: edge.link().get("connected"))
        edge.send(signal.SIGSTOP)
        node.fall_silent()
        other = queue.submit("other", priority="urgent")
        assert active(job.wait_for("Suspended")["status"]) == 3
        status = job.wait_until(lambda status: len(status.get("outOfContact", ())) == 3)["status"]
        assert (active(status), queue.used(), len(job.pods())) == (3, "3", 3)
        other.wait_for_workload("QuotaReserved", "False")
        edge.send(signal.SIGCONT)
        node.come_back()
        other.wait_for("Running")
        assert active(job.get()["status"]) == 0


# ---- kinds that Kueue does not know --------------------------------------------------------------


class JobWithWorkload:
    """A FederatedLearningJob or TrainingJob of three pods, and the Workload that a user makes."""

    def __init__(self, queue: Queue, kind: str, node: LoneNode) -> None:
        self._client, self._namespace = queue.client, queue.namespace
        is_federation = kind == "FederatedLearningJob"
        if is_federation:
            self._client.create(model("small", self._namespace))
            for number in range(2):
                self._client.create(dataset(f"data{number}", node.name, self._namespace))
        manifest = federation(queue.namespace) if is_federation else elastic(queue.namespace)
        self.pods = [f"digits-{pod}" for pod in (FEDERATION if is_federation else ELASTIC)]
        self._deciding = self.pods if is_federation else self.pods[:1]
        self._client.create(manifest)
        self.path = path_of(manifest)
        self.workload_path = f"{WORKLOADS}/namespaces/{self._namespace}/workloads/digits"
        self._client.create(
            {
                "apiVersion": "kueue.x-k8s.io/v1beta2",
                "kind": "Workload",
                "metadata": {"name": "digits", "namespace": self._namespace},
                "spec": {
                    "queueName": "team",
                    "podSets": [{"name": "all", "count": 3, "template": requesting()}],
                },
            }
        )

    def wait_for(self, phase: str) -> Object:
        def check() -> Object:
            status: Object = self._client.get(self.path).get("status", {})
            assert status.get("phase") == phase, f"{status}, {self.workload()}"
            return status

        return eventually(f"phase {phase}", check, timeout_s=90)

    def wait_for_pods(self) -> None:
        def check() -> bool:
            found = names(self._client, self._namespace)
            assert {*self.pods} <= {*found}, f"{found}"
            return True

        eventually("all pods", check)

    def workload(self) -> Object:
        return self._client.get(self.workload_path)

    def succeed(self) -> None:
        for pod in self._deciding:
            end(self._client, self._namespace, pod, 0)

    def wait_for_end(self) -> Object:
        def check() -> Object:
            workload = self.workload()
            assert condition(workload, "Finished").get("status") == "True", f"{workload}"
            return workload

        return eventually("the end of the Workload", check)


def requesting() -> Object:
    container = {
        "name": "main",
        "image": "edgeai/test",
        "resources": {"requests": {"cpu": "1"}},
    }
    return {"spec": {"containers": [container]}}


def federation(namespace: str) -> Object:
    spec = federated_learning_spec()
    for worker in (spec["aggregationWorker"], *spec["trainingWorkers"]):
        worker["template"] = requesting()
    return labelled("edgeai.io/v1alpha1", "FederatedLearningJob", namespace, spec)


def elastic(namespace: str) -> Object:
    replicas = {
        "launcher": {"template": requesting()},
        "worker": {"replicas": 2, "template": requesting()},
    }
    spec = {"etReplicaSpecs": replicas}
    return labelled("kai.alibabacloud.com/v1alpha1", "TrainingJob", namespace, spec)


def labelled(api: str, kind: str, namespace: str, spec: Object) -> Object:
    metadata = {"name": "digits", "namespace": namespace, "labels": {PREBUILT: "digits"}}
    return {"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec}


@pytest.mark.parametrize(
    ("kind", "phase"), [("FederatedLearningJob", "Training"), ("TrainingJob", "Running")]
)
def test_a_job_that_names_a_workload_is_admitted_evicted_and_admitted_again(
    kueue: Kueue, queue: Queue, node: LoneNode, kind: str, phase: str
) -> None:
    kueue.apply([priority("urgent", 1000)])
    first = queue.submit("first")
    first.wait_for("Running")
    job = JobWithWorkload(queue, kind, node)
    assert "startTime" not in job.wait_for("Suspended")
    first.succeed()
    started = job.wait_for(phase)["startTime"]
    job.wait_for_pods()
    urgent = queue.submit("urgent", priority="urgent")
    urgent.wait_for("Running")
    job.wait_for("Suspended")
    urgent.succeed()
    assert job.wait_for(phase)["startTime"] > started
    queue.wait_for_use(3)
    job.succeed()
    job.wait_for_end()
    queue.wait_for_use(0)


def test_a_deleted_job_takes_its_workload_with_it(queue: Queue, node: LoneNode) -> None:
    job = JobWithWorkload(queue, "TrainingJob", node)
    job.wait_for("Running")
    queue.client.delete(job.path)
    eventually("the end of the Workload", lambda: queue.client.find(job.workload_path) is None)
    queue.wait_for_use(0)


# ---- the page ------------------------------------------------------------------------------------


def test_the_manifests_of_the_page_are_admitted_one_after_the_other(
    control_plane: ControlPlane,
    client: Client,
    kueue: Kueue,
    manager: GlobalManager,
    namespace: str,
) -> None:
    quota, pytorch, elastic = BLOCK.findall(PAGE.read_text())

    def apply(manifests: str) -> None:
        done = control_plane.kubectl(
            "apply", "--namespace", namespace, "-f", "-", documents=manifests
        )
        assert done.returncode == 0, done.stderr

    def phase() -> str:
        path = f"/apis/kai.alibabacloud.com/v1alpha1/namespaces/{namespace}/trainingjobs/digits"
        return str(client.get(path).get("status", {}).get("phase"))

    node = LoneNode(client, f"node-{namespace}", namespace, {})
    try:
        apply(quota)
        apply(pytorch)
        workers = [f"mnist-worker-{index}" for index in range(3)]
        eventually("the pods of mnist", lambda: names(client, namespace) == workers)
        apply(elastic)
        eventually("the suspension of digits", lambda: phase() == "Suspended")
        for worker in workers:
            end(client, namespace, worker, 0)
        eventually("digits at work", lambda: phase() == "Running", timeout_s=90)
    finally:
        node.remove()
        client.delete(f"{WORKLOADS}/clusterqueues/research")


def active(status: Object) -> int:
    return sum(entry.get("active", 0) for entry in status["replicaStatuses"].values())


def condition(workload: Object, type_: str) -> Object:
    listed = workload.get("status", {}).get("conditions", ())
    return next((one for one in listed if one["type"] == type_), {})
