"""The published client of the training operator, kubeflow-training, works with both kinds.

The client is unchanged: it runs in an environment with nothing but its own requirements.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from edgeai.cli.api import Object
from tests.clients.clusters import TrainingCluster
from tests.clients.jobs import Framework, pod_names, training_job
from tests.conformance.space import Space
from tests.support.runtimes import INSTALL_S, python_with
from tests.support.waiting import eventually

_PROCESS: Final = Path(__file__).with_name("training_client_process.py")
WAIT_S: Final = 60


class Refused(Exception):
    """What the TrainingClient raised: its type and text."""

    def __init__(self, type_: str, text: str) -> None:
        super().__init__(f"{type_}: {text}")
        self.type = type_


class TrainingClient:
    """In a process of its own. Methods have the names and arguments that the package gives them.

    Args:
        python: of the environment that has the package
        kubeconfig: of the cluster
        kind: PyTorchJob or TFJob
        directory: gets a file with what the client prints
    """

    def __init__(
        self, python: Path, kubeconfig: Path, namespace: str, kind: str, directory: Path
    ) -> None:
        self._printed = directory / "training-client.log"
        argv = [str(python), str(_PROCESS), str(kubeconfig), namespace, kind]
        with self._printed.open("wb") as log:
            self._process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )

    def close(self) -> None:
        with self._process as process:
            process.kill()

    def printed(self) -> str:
        return self._printed.read_text()

    def call(self, method: str, **arguments: Any) -> Any:
        """What the method returns, as JSON. Raises: Refused"""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([method, arguments]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the client has ended: {self.printed()}"
        answer = json.loads(line)
        if "raised" in answer:
            raise Refused(answer["raised"], answer["text"])
        return answer["returned"]

    def wait_for(
        self, name: str, condition: str, *, timeout_s: float = WAIT_S, every_s: float = 1
    ) -> Object:
        """wait_for_job_conditions, which asks every `every_s` seconds."""
        job: Object = self.call(
            "wait_for_job_conditions",
            name=name,
            expected_conditions=[condition],
            polling_interval=every_s,
            wait_timeout=timeout_s,
        )
        return job


pytestmark = pytest.mark.timeout(INSTALL_S)


@pytest.fixture(scope="session")
def sdk() -> Path:
    return python_with("kubeflow-training")


@pytest.fixture
def client(
    sdk: Path, framework: Framework, training: TrainingCluster, space: Space, tmp_path: Path
) -> Iterator[TrainingClient]:
    kubeconfig = training.cluster.kubeconfig
    client = TrainingClient(sdk, kubeconfig, space.name, framework.kind, tmp_path)
    yield client
    client.close()


def wait_for_pods(client: TrainingClient, expected: list[str]) -> None:
    def check() -> bool:
        found = sorted(client.call("get_job_pod_names", name="mnist"))
        assert found == expected, f"{found}"
        return True

    eventually(f"the pods {expected}", check)


def told(client: TrainingClient) -> list[tuple[str, str]]:
    """Type and status of the job's conditions."""
    found = client.call("get_job_conditions", name="mnist")
    return [(condition["type"], condition["status"]) for condition in found]


def test_a_job_from_its_creation_to_its_deletion(
    framework: Framework, client: TrainingClient, training: TrainingCluster, space: Space
) -> None:
    client.call("create_job", job=training_job(framework, training, workers=2))
    running = client.wait_for("mnist", "Running")
    assert "startTime" in running["status"]
    assert client.call("is_job_created", name="mnist")
    assert client.call("is_job_running", name="mnist")
    assert not client.call("is_job_restarting", name="mnist")
    assert [job["metadata"]["name"] for job in client.call("list_jobs")] == ["mnist"]
    wait_for_pods(client, pod_names(framework, workers=2))

    leader = pod_names(framework, workers=0)[0]
    training.end(space.name, leader, 0)
    ended = client.wait_for("mnist", "Succeeded")
    assert ended["status"]["replicaStatuses"][framework.leader]["succeeded"] == 1
    assert "completionTime" in ended["status"]
    assert told(client) == [("Created", "True"), ("Running", "False"), ("Succeeded", "True")]
    assert client.call("is_job_succeeded", name="mnist")
    assert not client.call("is_job_failed", name="mnist")

    client.call("delete_job", name="mnist")
    wait_for_pods(client, [])
    assert client.call("list_jobs") == []


def test_pods_are_found_by_role_type_and_index(
    framework: Framework, client: TrainingClient, training: TrainingCluster
) -> None:
    client.call("create_job", job=training_job(framework, training, workers=2))
    leader, *workers = pod_names(framework, workers=2)
    wait_for_pods(client, [leader, *workers])
    assert client.call("get_job_pod_names", name="mnist", is_master=True) == [leader]
    one = {"replica_type": framework.leader.lower(), "replica_index": 0}
    assert client.call("get_job_pod_names", name="mnist", **one) == [leader]
    found = client.call("get_job_pod_names", name="mnist", replica_type="worker")
    assert sorted(found) == workers
    (pod,) = client.call("get_job_pods", name="mnist", replica_type="worker", replica_index=1)
    assert pod["metadata"]["name"] == workers[1]
    assert pod["metadata"]["ownerReferences"][0]["kind"] == framework.kind


def test_an_update_changes_the_number_of_workers_and_suspends(
    framework: Framework, client: TrainingClient, training: TrainingCluster
) -> None:
    client.call("create_job", job=training_job(framework, training, workers=1))
    wait_for_pods(client, pod_names(framework, workers=1))
    for workers in (3, 2):
        job = training_job(framework, training, workers=workers)
        client.call("update_job", name="mnist", job=job)
        wait_for_pods(client, pod_names(framework, workers=workers))
    client.call(
        "update_job", name="mnist", job=training_job(framework, training, workers=2, suspend=True)
    )
    wait_for_pods(client, [])
    eventually("the end of Running", lambda: not client.call("is_job_running", name="mnist"))


def test_a_job_as_it_was_read_can_be_written(
    framework: Framework, client: TrainingClient, training: TrainingCluster
) -> None:
    """It has all defaults of the client's objects, the status, and its resourceVersion."""
    client.call("create_job", job=training_job(framework, training))
    client.wait_for("mnist", "Running")

    def write() -> bool:
        job = client.call("get_job", name="mnist")
        job["spec"]["runPolicy"]["ttlSecondsAfterFinished"] = 600
        try:
            client.call("update_job", name="mnist", job=job)
        except Refused as error:
            if "(409)" in str(error):  # somebody has written its status meanwhile
                return False
            raise
        return True

    eventually("an update without a conflict", write)
    job = client.call("get_job", name="mnist")
    assert job["spec"]["runPolicy"] == {"ttlSecondsAfterFinished": 600}
    assert client.call("is_job_running", name="mnist")


def test_a_failed_job_ends_the_wait(
    framework: Framework, client: TrainingClient, training: TrainingCluster, space: Space
) -> None:
    client.call("create_job", job=training_job(framework, training))
    training.end(space.name, "mnist-worker-0", 1)
    with pytest.raises(Refused, match="is Failed"):
        client.wait_for("mnist", "Succeeded")
    assert client.call("is_job_failed", name="mnist")
    client.wait_for("mnist", "Failed")


def test_a_restart_is_seen(
    framework: Framework, client: TrainingClient, training: TrainingCluster, space: Space
) -> None:
    """The job is Restarting until the replica runs again. The pause is longer each time."""
    client.call("create_job", job=training_job(framework, training))

    def is_seen() -> bool:
        training.end(space.name, "mnist-worker-0", 137)
        try:
            client.wait_for("mnist", "Restarting", timeout_s=3, every_s=0.1)
        except Refused as error:
            if error.type == "TimeoutError":
                return False
            raise
        return True

    eventually("the condition Restarting", is_seen)
    client.wait_for("mnist", "Running")


CALLS_WITHOUT_A_JOB = {"get": "get_job", "delete": "delete_job"}


@pytest.mark.parametrize("method", CALLS_WITHOUT_A_JOB.values(), ids=CALLS_WITHOUT_A_JOB)
def test_a_job_that_does_not_exist_is_told_by_404(client: TrainingClient, method: str) -> None:
    with pytest.raises(Refused, match="404"):
        client.call(method, name="nobody")


def test_a_second_job_of_one_name_is_told_by_409(
    framework: Framework, client: TrainingClient, training: TrainingCluster
) -> None:
    job = training_job(framework, training)
    client.call("create_job", job=job)
    with pytest.raises(Refused, match="409"):
        client.call("create_job", job=job)


def read_logs(client: TrainingClient, **arguments: Any) -> Any:
    """Raises: AssertionError while a container has no log yet"""
    try:
        return client.call("get_job_logs", name="mnist", **arguments)
    except Refused as error:
        raise AssertionError(str(error)) from error


def test_logs_are_read_and_followed(
    framework: Framework,
    client: TrainingClient,
    training: TrainingCluster,
    space: Space,
    with_logs: None,
) -> None:
    client.call("create_job", job=training_job(framework, training, workers=2))
    client.wait_for("mnist", "Running")
    leader, *workers = pod_names(framework, workers=2)

    def started() -> bool:
        logs, _ = read_logs(client, is_master=False)
        expected = {name: f"{name} starts\n" for name in [leader, *workers]}
        assert logs == expected, f"{logs}"
        return True

    eventually("the logs of all pods", started)
    assert client.call("get_job_logs", name="mnist")[0] == {leader: f"{leader} starts\n"}

    for name in workers:
        training.end(space.name, name, 0)
    followed = {"is_master": False, "replica_type": "worker", "follow": True}
    logs, _ = client.call("get_job_logs", name="mnist", **followed)
    assert logs == {name: f"{name} starts{name} ends with 0" for name in workers}
    assert f"[Pod {workers[0]}]: {workers[0]} ends with 0" in client.printed()


def test_events_come_with_the_logs(
    framework: Framework, client: TrainingClient, training: TrainingCluster, with_logs: None
) -> None:
    client.call("create_job", job=training_job(framework, training))
    client.wait_for("mnist", "Running")

    def check() -> bool:
        _, events = read_logs(client, verbose=True)
        of_job = [
            text.split(" ", 2)[2] for text in events.get(f"{framework.kind.lower()}/mnist", [])
        ]
        assert f"{framework.kind} mnist is running." in of_job, f"{events}"
        return True

    eventually("the event of the start", check)
