"""How fast the GlobalManager makes the pods and Services of many training jobs.

    python -m tests.bench training

A real control plane with its controller manager and scheduler. JOBS TFJobs of two workers are
created at once, so each needs two pods and two Services. A bare client then creates the same
objects while the GlobalManager is stopped: its rate is what API server and machine are capable of.
Then it makes all writes that the GlobalManager makes until the last job is Created: also the jobs
and a status of each. Events come later, at a rate of their own.
"""

import contextlib
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.bench.onlooker import Onlooker
from tests.bench.plane import connection, install, running_plane, send, wait_for_account
from tests.bench.process import DEADLINE_S, answer_of
from tests.bench.spread import spread
from tests.cluster.controlplane import ControlPlane
from tests.support.manager import GlobalManager
from tests.support.manifests import manifest
from tests.support.waiting import eventually

JOBS: Final = 300
REPLICAS: Final = 2
ROUNDS: Final = 3
RUNNING_AT_A_TIME: Final = 4
NODES: Final = 20
SETTLE_S: Final = 5.0
FINISHED: Final = 10_000
NEW: Final = 50  # jobs that are created one after the other

Object = dict[str, Any]
Request = tuple[str, str, Object]
"""Method, path and body."""


def measure() -> dict[str, Any]:
    """Figures of docs/performance.md, "Training jobs"."""
    with running_plane() as where:
        return _Bench(*where).figures()


class _Bench:
    def __init__(self, control_plane: ControlPlane, directory: Path) -> None:
        self._control_plane = control_plane
        self._client = control_plane.client
        self._directory = directory
        self._connection = connection(control_plane, directory)

    def figures(self) -> dict[str, Any]:
        self._prepare()
        return {
            "rounds": [self._round(number) for number in range(ROUNDS)],
            "killed": self._killed(),
            "finished": self._beside_finished_jobs(),
        }

    def _prepare(self) -> None:
        install(self._control_plane)
        for number in range(NODES):
            self._client.create(node(number))

    def _namespace(self, name: str) -> None:
        self._client.create_named("Namespace", name)
        wait_for_account(self._client, name)

    def _delete_namespace(self, name: str) -> None:
        """Until it is gone, so that the garbage collector does not work beside the next measure."""
        path = f"/api/v1/namespaces/{name}"
        self._client.delete(path)
        eventually(
            f"the end of namespace {name}",
            lambda: self._client.find(path) is None,
            timeout_s=DEADLINE_S,
            poll_s=0.5,
        )

    def _send(self, requests: list[Request], at_a_time: int = 16) -> "subprocess.Popen[str]":
        return send(self._control_plane, self._directory, requests, concurrency=at_a_time)

    def _manager(self) -> contextlib.AbstractContextManager[GlobalManager]:
        kubeconfig = self._control_plane.kubeconfig
        return GlobalManager(kubeconfig=kubeconfig, directory=self._directory).running()

    @contextlib.contextmanager
    def _watched(self, namespace: str) -> Iterator[Onlooker]:
        """Of pods, Services and jobs of a new namespace."""
        self._namespace(namespace)
        with Onlooker(
            self._connection,
            pods=f"/api/v1/namespaces/{namespace}/pods",
            services=f"/api/v1/namespaces/{namespace}/services",
            jobs=f"/apis/kubeflow.org/v1/namespaces/{namespace}/tfjobs",
        ) as onlooker:
            yield onlooker

    # ---- many jobs at once -----------------------------------------------------------------------

    def _round(self, number: int) -> dict[str, Any]:
        namespace = f"round-{number}"
        with self._watched(namespace) as onlooker:
            with self._manager():
                figures = self._make_jobs(namespace, onlooker)
                figures |= self._run_pods(onlooker)
            made = [
                (plural, bare(each))
                for plural in ("services", "pods")
                for each in self._client.list(onlooker.paths[plural])
            ]
            jobs = self._client.list(onlooker.paths["jobs"])
        self._delete_namespace(namespace)
        twin, whole = f"bare-{number}", f"whole-{number}"
        figures["bare_per_s"] = self._rate_of(creations(made, twin), twin, len(made))
        requests = creations([*(("tfjobs", bare(each)) for each in jobs), *made], whole)
        requests += [status_of(each, whole) for each in jobs]
        figures["whole_per_s"] = self._rate_of(requests, whole, len(made))
        figures["ratio"] = round(figures["made_per_s"] / figures["bare_per_s"], 3)
        figures["ratio_whole"] = round(figures["told_per_s"] / figures["whole_per_s"], 3)
        return figures

    def _rate_of(self, requests: list[Request], namespace: str, objects: int) -> float:
        """Objects a second of a bare client that sends the requests in a new namespace."""
        self._namespace(namespace)
        _, seconds = _times(self._send(requests))
        self._delete_namespace(namespace)
        return round(objects / seconds, 1)

    def _make_jobs(self, namespace: str, onlooker: Onlooker) -> dict[str, Any]:
        jobs = [job(f"bench-{number}", namespace) for number in range(JOBS)]
        sender = self._send([("POST", onlooker.paths["jobs"], each) for each in jobs])
        count = JOBS * REPLICAS
        pods = onlooker.wait_for("pods", "exists", count)
        services = onlooker.wait_for("services", "exists", count)
        created = onlooker.wait_for("jobs", "Created", JOBS)
        began, _ = _times(sender)
        last = max(*pods.values(), *services.values())
        owned = last_of_each(pods, services)
        return {
            "made_per_s": round(2 * count / (last - began), 1),
            "told_per_s": round(2 * count / (max(last, *created.values()) - began), 1),
            "created_condition_after_objects_s": spread(
                [max(0.0, at - owned[name]) for name, at in created.items()]
            ),
        }

    def _run_pods(self, onlooker: Onlooker) -> dict[str, Any]:
        """All pods begin to run. How much later do the jobs say so?"""
        requests: list[Request] = [
            ("PATCH", f"{onlooker.paths['pods']}/{name.partition(':')[0]}/status", RUNNING)
            for name in onlooker.times("pods", "exists")
        ]
        sender = self._send(requests, RUNNING_AT_A_TIME)
        pods = onlooker.wait_for("pods", "Running", JOBS * REPLICAS)
        jobs = onlooker.wait_for("jobs", "Running", JOBS)
        _times(sender)
        first: dict[str, float] = {}
        for name, at in pods.items():
            owner = job_of(name)
            first[owner] = min(at, first.get(owner, at))
        late = [at - first[name] for name, at in jobs.items()]
        return {"running_condition_after_first_pod_s": spread([max(0.0, each) for each in late])}

    # ---- a GlobalManager that is killed ----------------------------------------------------------

    def _killed(self) -> dict[str, Any]:
        """The GlobalManager dies when a third of the pods exist, and another one goes on."""
        namespace, count = "killed", JOBS * REPLICAS
        with self._watched(namespace) as onlooker:
            with self._manager() as manager:
                jobs = [job(f"bench-{number}", namespace) for number in range(JOBS)]
                requests = [("POST", onlooker.paths["jobs"], each) for each in jobs]
                sender = self._send(requests)
                onlooker.wait_for("pods", "exists", count // 3)
                manager.stop(signal.SIGKILL)
            _times(sender)
            with self._manager():
                onlooker.wait_for("pods", "exists", count)
                onlooker.wait_for("services", "exists", count)
                onlooker.wait_for("jobs", "Created", JOBS)
                time.sleep(SETTLE_S)
                figures = {
                    "pods_ever": len(onlooker.times("pods", "exists")),
                    "pods_at_the_end": len(self._client.list(onlooker.paths["pods"])),
                }
        self._delete_namespace(namespace)
        return figures

    # ---- finished jobs ---------------------------------------------------------------------------

    def _beside_finished_jobs(self) -> dict[str, Any]:
        figures = {"job_to_pods_ms_without": self._new_jobs("without")}
        self._namespace("finished")
        path = "/apis/kubeflow.org/v1/namespaces/finished/tfjobs"
        jobs = [job(f"old-{number}", "finished") for number in range(FINISHED)]
        _times(self._send([("POST", path, each) for each in jobs]))
        ended = finished_status()
        patches: list[Request] = [
            ("PATCH", f"{path}/{each['metadata']['name']}/status", ended) for each in jobs
        ]
        _times(self._send(patches))
        return {**figures, "job_to_pods_ms_beside": self._new_jobs("beside")}

    def _new_jobs(self, namespace: str) -> dict[str, float]:
        """Milliseconds from the request for a job until its last pod is seen, one by one."""
        taken = []
        with self._watched(namespace) as onlooker, self._manager():
            time.sleep(SETTLE_S)
            for number in range(NEW):
                asked_s = time.monotonic()
                self._client.create(job(f"new-{number}", namespace))
                pods = onlooker.wait_for("pods", "exists", (number + 1) * REPLICAS)
                taken.append((max(pods.values()) - asked_s) * 1000)
        self._delete_namespace(namespace)
        return spread(taken)


RUNNING: Final[Object] = {"status": {"phase": "Running"}}


def node(number: int) -> Object:
    """A Node that the scheduler binds pods to."""
    room = {"cpu": "64", "memory": "64Gi", "pods": "2000"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    status = {"capacity": room, "allocatable": room, "conditions": [ready]}
    return manifest("v1 Node", f"node-{number}", status=status)


def job(name: str, namespace: str, replicas: int = REPLICAS) -> Object:
    containers = [{"name": "tensorflow", "image": "registry.test/train:1", "command": ["train"]}]
    worker = {"replicas": replicas, "template": {"spec": {"containers": containers}}}
    return manifest(
        "kubeflow.org/v1 TFJob", name, namespace, spec={"tfReplicaSpecs": {"Worker": worker}}
    )


def finished_status() -> Object:
    at = "2026-01-01T00:00:00Z"
    times = {"lastTransitionTime": at, "lastUpdateTime": at}
    conditions = [
        {"type": t, "status": is_so, "reason": f"TFJob{t}", "message": "as it went", **times}
        for t, is_so in (("Created", "True"), ("Running", "False"), ("Succeeded", "True"))
    ]
    return {"status": {"conditions": conditions, "startTime": at, "completionTime": at}}


def bare(object_: Object) -> Object:
    """What a client sends to create the object without an owner in another namespace."""
    kept = ("name", "labels", "annotations")
    metadata = {key: value for key, value in object_["metadata"].items() if key in kept}
    assigned = ("nodeName", "clusterIPs")
    spec = {key: value for key, value in object_["spec"].items() if key not in assigned}
    return {**object_, "metadata": metadata, "spec": spec, "status": {}}


def creations(objects: list[tuple[str, Object]], namespace: str) -> list[Request]:
    """Args: objects: each with the plural of its type"""
    return [("POST", path_of(plural, namespace), each) for plural, each in objects]


def status_of(job: Object, namespace: str) -> Request:
    path = f"{path_of('tfjobs', namespace)}/{job['metadata']['name']}/status"
    return "PATCH", path, {"status": job["status"]}


def path_of(plural: str, namespace: str) -> str:
    group = "/apis/kubeflow.org/v1" if plural == "tfjobs" else "/api/v1"
    return f"{group}/namespaces/{namespace}/{plural}"


def job_of(name: str) -> str:
    """ "bench-7-worker-0:<uid>" -> "bench-7" """
    return name.rpartition("-worker-")[0]


def last_of_each(*seen: dict[str, float]) -> dict[str, float]:
    """Job -> when its last object was seen."""
    last: dict[str, float] = {}
    for times in seen:
        for name, at in times.items():
            last[job_of(name)] = max(at, last.get(job_of(name), at))
    return last


def _times(sender: "subprocess.Popen[str]") -> tuple[float, float]:
    """When a sender began, and the seconds that it took."""
    said = answer_of(sender)
    return said["began"], said["ended"] - said["began"]
