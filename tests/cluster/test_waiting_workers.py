"""What a job says of workers that wait for a Secret, from the words of a real kubelet.

A kubelet says of a missing Secret for `env` or `envFrom` in the pod's status. It says nothing of an
optional reference: the container starts. Of a Secret for a volume it says nothing in the status.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from edgeai import times
from edgeai.cli.api import Object, path_of
from tests.cluster.images import BASE
from tests.cluster.samples import model, service
from tests.support.cluster import CLOUD, EDGES, Cluster
from tests.support.manager import GlobalManager
from tests.support.waiting import eventually

pytestmark = pytest.mark.timeout(240, func_only=True)
WITHIN_S: Final = 10.0
SECRET: Final = "/api/v1/namespaces/default/secrets/bucket-keys"


@pytest.fixture(scope="module")
def manager(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GlobalManager]:
    """With an image on the nodes in the place of the one that fetches models."""
    cluster.control_plane.prepare()
    manager = GlobalManager(
        kubeconfig=cluster.control_plane.kubeconfig,
        directory=tmp_path_factory.mktemp("globalmanager"),
        flags=("--storage-initializer-image", BASE),
    )
    with manager.running():
        yield manager


def template(node: str, **container: Any) -> Object:
    main = {
        "name": "main",
        "image": BASE,
        "imagePullPolicy": "Never",
        "command": ["sleep", "3600"],
        **container,
    }
    spec = {"nodeName": node, "terminationGracePeriodSeconds": 1, "containers": [main]}
    return {"template": {"spec": spec}}


def applied(cluster: Cluster, name: str, url: str, **edge: Any) -> Object:
    """A service whose cloud worker fetches its model from `url` with the keys of a Secret."""
    for role, fields in (
        ("small", {"url": "/tmp/model"}),
        ("big", {"url": url, "credentialName": "bucket-keys"}),
    ):
        made = model(f"{name}-{role}", "default")
        cluster.client.create({**made, "spec": fields})
    workers: dict[str, Object] = {
        "edge": {"model": {"name": f"{name}-small"}, **template(EDGES[0], **edge)},
        "cloud": {"model": {"name": f"{name}-big"}, **template(CLOUD)},
    }
    for worker in workers.values():
        worker["nodeName"] = worker["template"]["spec"].pop("nodeName")
    return cluster.client.create(service("default", name=name, **workers))


def wait_for(cluster: Cluster, job: Object, type_: str, check: Callable[[Object], bool]) -> Object:
    """The condition of this type, once it is so."""

    def found() -> Object | None:
        status = cluster.client.get(path_of(job)).get("status") or {}
        conditions = {each["type"]: each for each in status.get("conditions") or ()}
        told: Object = conditions.get(type_) or {}
        assert told, f"conditions are {conditions}"
        assert check(told), f"it says {told}"
        return told

    return eventually(f"the condition {type_}", found)


def pods_of(cluster: Cluster, job: Object, role: str) -> list[Object]:
    selector = f"edgeai.io/uid={job['metadata']['uid']},edgeai.io/role={role}"
    return cluster.client.list(f"/api/v1/namespaces/default/pods?labelSelector={selector}")


def seconds_between(earlier: str, later: str) -> float:
    return (times.parse(later) - times.parse(earlier)).total_seconds()


def test_a_missing_secret_of_a_model_is_named_at_once(
    cluster: Cluster, manager: GlobalManager
) -> None:
    job = applied(cluster, "missing", "s3://models/big.onnx")
    told = wait_for(cluster, job, "ResolvedRefs", lambda told: told["reason"] == "SecretNotFound")
    assert "Secret default/bucket-keys" in told["message"]
    since = job["metadata"]["creationTimestamp"]
    assert seconds_between(since, told["lastTransitionTime"]) <= WITHIN_S


def test_a_secret_that_goes_before_the_kubelet_needs_it_is_named(
    cluster: Cluster, manager: GlobalManager
) -> None:
    """By the kubelet, beside what the GlobalManager itself says."""
    metadata = {"name": "bucket-keys", "namespace": "default"}
    cluster.client.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
    job = applied(cluster, "gone", "s3://models/big.onnx")
    eventually("the cloud worker", lambda: pods_of(cluster, job, "cloud"))
    cluster.client.delete(SECRET)
    for pod in pods_of(cluster, job, "cloud"):
        cluster.client.delete(f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}")
    words = 'secret "bucket-keys" not found'
    told = wait_for(cluster, job, "Running", lambda told: words in told["message"])
    assert told["reason"] == "CreateContainerConfigError"
    wait_for(cluster, job, "ResolvedRefs", lambda told: told["reason"] == "SecretNotFound")


@pytest.mark.parametrize("is_optional", [False, True])
def test_a_missing_secret_of_a_template_is_named_unless_it_is_optional(
    cluster: Cluster, manager: GlobalManager, is_optional: bool
) -> None:
    reference = {"name": "not-there", "optional": is_optional}
    name = f"template-{str(is_optional).lower()}"
    job = applied(cluster, name, "/tmp/model", envFrom=[{"secretRef": reference}])
    if is_optional:  # the kubelet starts the container

        def runs() -> bool:
            states = [pod["status"] for pod in pods_of(cluster, job, "edge")]
            assert [state["phase"] for state in states] == ["Running"], f"{states}"
            return True

        eventually("the running worker", runs)
        return
    words = 'secret "not-there" not found'
    told = wait_for(cluster, job, "Running", lambda told: words in told["message"])
    (pod,) = pods_of(cluster, job, "edge")
    assert f"pod {pod['metadata']['name']} on node {EDGES[0]}" in told["message"]
    scheduled = next(c for c in pod["status"]["conditions"] if c["type"] == "PodScheduled")
    assert seconds_between(scheduled["lastTransitionTime"], told["lastTransitionTime"]) <= WITHIN_S
