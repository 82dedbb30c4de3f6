"""Of a pod only what is read stays in memory, whatever a tenant writes into its template."""

import tracemalloc
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from edgeai.api.resources import PODS, Object, ref_of
from edgeai.faults.pod_faults import examine
from edgeai.kube.client import KubeClient
from edgeai.kube.objects import Unreadable
from edgeai.times import rfc3339
from globalmanager.cache.pods import FORMS, MAX_POD_BYTES, pod_part
from globalmanager.engine.pod_security import Level, violations
from globalmanager.kinds.training.pytorchjob.framework import PYTORCH
from globalmanager.kinds.training.replicas import trainer
from tests.globalmanager.engine.test_pod_security import ALLOWED, BASELINE, RESTRICTED
from tests.globalmanager.scripted_api import ScriptedApi
from tests.support.world import NOW

VARIABLES = 30_000
STATUS = {
    "phase": "Failed",
    "reason": "Evicted",
    "message": "the node was low on memory",
    "podIP": "10.0.0.1",
    "hostIP": "10.0.0.2",
    "startTime": "2026-01-02T03:04:05Z",
    "nominatedNodeName": "node-2",
    "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
    ],
    "initContainerStatuses": [{"name": "init", "state": {"running": {"startedAt": "x"}}}],
    "containerStatuses": [
        {
            "name": "pytorch",
            "ready": False,
            "restartCount": 3,
            "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m"}},
            "lastState": {"terminated": {"exitCode": 0, "reason": "Error", "message": "last"}},
        }
    ],
}


def pod(*, env: list[Any] | None = None, **spec: Any) -> Object:
    container = {"name": "pytorch", "image": "image:1", "env": env or []}
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "job", "uid": "j"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "job-worker-0",
            "namespace": "team",
            "uid": "u",
            "resourceVersion": "7",
            "creationTimestamp": "2026-01-02T03:04:05Z",
            "deletionTimestamp": "2026-01-02T04:04:05Z",
            "deletionGracePeriodSeconds": 30,
            "labels": {"edgeai.io/uid": "j"},
            "annotations": {"edgeai.io/attempt": "2", "edgeai.io/spec-hash": "0"},
            "finalizers": ["a/b"],
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": {"nodeName": "node-1", "containers": [container], **spec},
        "status": STATUS,
    }


def part_of(object_: Object) -> Object:
    return pod_part(msgspec.json.encode(object_))


def fat(variables: int = VARIABLES) -> Object:
    return pod(env=[{"name": f"VARIABLE_{n}", "value": "x"} for n in range(variables)])


def test_metadata_and_status_are_as_the_api_has_them() -> None:
    given = pod()
    part = part_of(given)
    assert part["metadata"] == given["metadata"]
    assert part["status"] == STATUS
    assert (part["apiVersion"], part["kind"]) == ("v1", "Pod")


def test_thirty_thousand_variables_take_no_memory() -> None:
    document = msgspec.json.encode(fat())
    assert len(document) > 1_000_000
    tracemalloc.start()
    part = pod_part(document)
    size, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert trainer(PYTORCH, part) == {"name": "pytorch", "image": "image:1"}
    assert size < 8 * 1024
    assert peak < 1.5 * len(document)


def test_the_variables_that_plans_compare_are_kept() -> None:
    mine = [{"name": "WORLD_SIZE", "value": "3"}, {"name": "PET_NNODES", "value": "3"}]
    part = part_of(pod(env=[{"name": "MINE", "value": '"WORLD_SIZE"'}, *mine]))
    assert part["spec"]["containers"][0]["env"] == mine


def test_of_volumes_the_names_of_config_maps_and_secrets_are_kept() -> None:
    items = [{"key": f"k{number}", "path": "p"} for number in range(100)]
    volumes = [
        {"name": "a", "configMap": {"name": "x", "optional": True, "items": items}},
        {"name": "b", "secret": {"secretName": "y", "items": items}},
        {"name": "c", "secret": {"secretName": "z" * 1000}},
        {"name": "d", "configMap": None},
        {"name": "e", "csi": {"driver": "d", "readOnly": True}},
    ]
    assert part_of(pod(volumes=volumes))["spec"]["volumes"] == [
        {"name": "a", "configMap": {"name": "x", "optional": True}},
        {"name": "b", "secret": {"secretName": "y"}},
        {"name": "c", "secret": {"secretName": "z" * 253}},
        {"name": "d", "configMap": {}},
        {"name": "e", "csi": {}},
    ]


def offender() -> Object:
    """A pod whose containers of all types have what the standard forbids."""
    probe = {"httpGet": {"host": "10.0.0.1", "port": 80}, "tcpSocket": {"host": "10.0.0.1"}}
    container = {
        "name": "pytorch",
        "image": "image:1",
        "ports": [{"containerPort": 1, "hostPort": 2}],
        "livenessProbe": probe,
        "readinessProbe": probe,
        "startupProbe": probe,
        "lifecycle": {"postStart": probe, "preStop": probe},
        "securityContext": {
            "privileged": True,
            "procMount": "Unmasked",
            "capabilities": {"add": ["SYS_ADMIN"]},
            "seLinuxOptions": {"user": "u"},
            "windowsOptions": {"hostProcess": True},
        },
    }
    whole = pod(
        hostNetwork=True,
        hostPID=True,
        hostIPC=True,
        initContainers=[container],
        ephemeralContainers=[container],
        securityContext={"runAsUser": 0, "sysctls": [{"name": "kernel.msgmax", "value": "1"}]},
        volumes=[{"name": "a", "hostPath": {"path": "/"}}, {"name": "b", "nfs": {"server": "x"}}],
    )
    whole["spec"]["containers"].append(container)
    whole["metadata"]["annotations"] |= {
        "container.apparmor.security.beta.kubernetes.io/pytorch": "unconfined"
    }
    return whole


def without_nulls(value: Any) -> Any:
    """The value as the API writes it: a field that is null is absent."""
    if isinstance(value, dict):
        return {key: without_nulls(each) for key, each in value.items() if each is not None}
    return [without_nulls(each) for each in value] if isinstance(value, list) else value


SECURITY: dict[str, Object] = {
    "offender": offender(),
    "windows": pod(os={"name": "windows"}),
    **{name: without_nulls(sample) for name, _, sample in (*BASELINE, *RESTRICTED)},
    **{f"allowed: {name}": without_nulls(sample) for name, sample in ALLOWED},
}


@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize("sample", SECURITY.values(), ids=SECURITY)
def test_pod_security_finds_the_same_in_the_part(sample: Object, level: Level) -> None:
    assert violations(level, part_of(sample)) == violations(level, sample)


def faulty(status: Object, **spec: Any) -> Object:
    """A pod with a status of its own."""
    metadata = {"name": "job-worker-0", "creationTimestamp": rfc3339(NOW)}
    return {"metadata": metadata, "spec": {"nodeName": "node-1", **spec}, "status": status}


def restarting(list_: str) -> Object:
    """The status of a pod with a container that crashes, in this list."""
    end = {"exitCode": 1, "reason": "Error", "startedAt": rfc3339(NOW), "finishedAt": rfc3339(NOW)}
    running = {"running": {"startedAt": rfc3339(NOW)}}
    entry = {"name": "a", "restartCount": 2, "state": running, "lastState": {"terminated": end}}
    return {"phase": "Running", list_: [entry]}


CREATING = [{"name": "a", "state": {"waiting": {"reason": "ContainerCreating"}}}]
CUT_OFF: Object = {
    "phase": "Running",
    "conditions": [
        {"type": "ContainersReady", "status": "True"},
        {"type": "Ready", "status": "False"},
    ],
}
FAULTY: dict[str, Object] = {
    "evicted": faulty({"phase": "Failed", "reason": "Evicted", "message": "low on memory"}),
    "without a node": faulty({"phase": "Pending"}, nodeName=""),
    "on a node": faulty({"phase": "Pending"}),
    "a crash": faulty(restarting("containerStatuses")),
    "a crash of an init container": faulty(restarting("initContainerStatuses")),
    "a crash, never again": faulty(restarting("containerStatuses"), restartPolicy="Never"),
    "cut off": faulty(CUT_OFF),
    "readiness gates": faulty(CUT_OFF, readinessGates=[{"conditionType": "mine"}]),
    "volumes": faulty(
        {"phase": "Pending", "containerStatuses": CREATING},
        volumes=[
            {"name": "v", "configMap": {"name": "x"}},
            {"name": "w", "configMap": {"name": "y", "optional": True}},
            {"name": "z", "secret": {"secretName": "z"}},
        ],
    ),
    "being deleted": pod(),
}


@pytest.mark.parametrize("sample", FAULTY.values(), ids=FAULTY)
def test_the_faults_of_the_part_are_those_of_the_pod(sample: Object) -> None:
    later = NOW + timedelta(seconds=10)
    part = part_of(sample)
    assert examine([part], later) == examine([sample], later)
    assert examine([part]) == examine([sample])


def test_the_samples_differ_in_their_faults() -> None:
    """Each pair differs in a field that a fault depends on."""
    for one, other in (("a crash", "a crash, never again"), ("cut off", "readiness gates")):
        assert examine([FAULTY[one]], NOW) != examine([FAULTY[other]], NOW)


def many(number: int) -> dict[str, str]:
    return {f"a.example.com/{n}": "x" for n in range(number)}


# Made when they are needed: each process that collects the tests would make and keep them all.
LARGE: dict[str, Callable[[], Object]] = {
    "labels": lambda: {"metadata": {"labels": many(20_000) | {"edgeai.io/uid": "j"}}},
    "annotations": lambda: {
        "metadata": {"annotations": {"a": "x" * 250_000, "edgeai.io/attempt": "2"}}
    },
    "containers": lambda: {"spec": {"containers": [{"name": f"c{n}"} for n in range(20_000)]}},
    "volumes": lambda: {
        "spec": {"volumes": [{"name": f"v{n}", "emptyDir": {}} for n in range(20_000)]}
    },
    "config maps": lambda: {
        "spec": {
            "volumes": [{"name": f"v{n}", "configMap": {"name": "x" * 250}} for n in range(20_000)]
        }
    },
    "sysctls": lambda: {
        "spec": {"securityContext": {"sysctls": [{"name": f"n{n}"} for n in range(20_000)]}}
    },
    "message": lambda: {"status": {"message": "x" * 300_000}},
    "conditions": lambda: {"status": {"conditions": [{"type": f"t{n}"} for n in range(20_000)]}},
}


@pytest.mark.parametrize("what", LARGE)
def test_what_is_left_of_a_pod_has_a_limit(what: str) -> None:
    given = pod()
    for field, values in LARGE[what]().items():
        given[field] = {**given[field], **values}
    part = part_of(given)
    assert len(msgspec.json.encode(part)) <= 2 * MAX_POD_BYTES
    for field in ("name", "namespace", "uid", "resourceVersion", "ownerReferences"):
        assert part["metadata"][field] == given["metadata"][field]
    assert part["status"]["phase"] == "Failed"
    own = [*part["metadata"]["labels"], *part["metadata"]["annotations"]]
    assert {"edgeai.io/uid", "edgeai.io/attempt"} <= {*own}


async def test_every_answer_about_a_pod_is_reduced(
    scripted: ScriptedApi, scripted_client: KubeClient
) -> None:
    """Also the answers to writes, which go into the cache before the watch brings them."""
    whole, ref = fat(20_000), ref_of(PODS, fat(1))
    scripted.lists = [scripted.listing(whole, version=7)]
    scripted.others = [scripted.json(whole)]
    client = scripted_client.reading(FORMS)
    answers: list[Object | Unreadable | None] = [
        *(await client.list(PODS)).items,
        client.read(PODS, msgspec.json.encode(whole)),
        await client.get(ref),
        await client.create(PODS, whole),
        await client.replace(PODS, whole),
        await client.merge_patch(ref, {}),
        await client.delete(ref),
    ]
    assert answers == [part_of(whole)] * 7
    assert await scripted_client.get(ref) == whole


async def test_a_status_in_place_of_a_pod_says_that_the_pod_is_gone(
    scripted: ScriptedApi, scripted_client: KubeClient
) -> None:
    told = {"kind": "Status", "metadata": {}, "status": "Success", "details": {"name": "a"}}
    scripted.others = [scripted.json(told)]
    assert await scripted_client.reading(FORMS).delete(ref_of(PODS, pod())) is None
