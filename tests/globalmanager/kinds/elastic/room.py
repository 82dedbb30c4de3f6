"""An elastic job in a cluster whose room comes and goes."""

from typing import Any, Final, Self

from edgeai.api.pod_state import is_active
from edgeai.api.resources import PODS, SERVICES, Object, ObjectRef
from edgeai.times import rfc3339
from globalmanager.contract import Action, Create, Delete, Event, Plan
from tests.globalmanager.kinds.elastic.world import JOB, LAUNCHER, ElasticWorld, example
from tests.support.world import at, merged

FULL: Final = "0/3 nodes are available: 3 Insufficient cpu."


def elastic(*, low: int = 1, high: int = 6, queued: int | None = None, **spec: Any) -> Object:
    """An elastic job. Args: low, high: minReplicas and maxReplicas; queued: maxQueued"""
    worker = {"minReplicas": low, "replicas": low, "maxReplicas": high}
    form = {} if queued is None else {"maxQueued": queued}
    return example(worker=worker, elastic=form, **spec)


def check_that_new_pods_are_last(plan: Plan) -> None:
    """Nothing waits for a pod or a Service that may be refused, but pods of new Services."""
    may_be_refused = [
        [isinstance(action, Create) and action.type in (PODS, SERVICES) for action in stage]
        for stage in plan.stages
    ]
    first = next((at for at, stage in enumerate(may_be_refused) if any(stage)), len(plan.stages))
    assert all(all(stage) for stage in may_be_refused[first + 1 :]), plan.stages
    assert len(may_be_refused) <= first + 2, plan.stages


class ElasticCluster(ElasticWorld):
    """One job, and a scheduler that binds its pods in the order of their creation.

    Args: room: the number of pods that the nodes can take, the launcher's included
    """

    def __init__(self, job: Object, *, room: int) -> None:
        super().__init__(job)
        self.room = room
        self.terminates = True
        self.ended: list[str] = []
        """Workers with a node that the job itself has deleted."""
        self.broken: set[str] = set()
        """Pods that do not start on the node that the scheduler gives them."""
        self.events: list[Event] = []
        """The events of all plans that took effect."""

    def _act(self, action: Action) -> None:
        if isinstance(action, Delete) and action.ref.type == PODS:
            pod = self.children[action.ref]
            if "nodeName" not in pod["spec"]:  # nobody has to confirm its end
                assert pod["metadata"]["uid"] == action.uid
                del self.children[action.ref]
                return
            if is_active(pod):
                self.ended.append(action.ref.name)
        super()._act(action)

    # ---- the cluster ----

    def set(self, name: str, patch: Object) -> None:
        ref = ObjectRef(PODS, "default", name)
        self.children[ref] = merged(self.children[ref], patch)

    def bound(self) -> list[str]:
        """The pods that take room."""
        return [
            name
            for name, pod in self.pods_of_job().items()
            if "nodeName" in pod["spec"]
            and (pod.get("status") or {}).get("phase") not in ("Failed", "Succeeded")
        ]

    def tick(self) -> None:
        """The scheduler and the nodes do all that they can do now."""
        for name, pod in self.pods_of_job().items():
            if "deletionTimestamp" in pod["metadata"]:
                self.gone("Pod", name)
        for name, pod in self.pods_of_job().items():
            if "nodeName" in pod["spec"]:
                continue
            is_free = len(self.bound()) < self.room
            condition = {"type": "PodScheduled", "status": str(is_free)}
            if is_free:
                self.set(name, {"spec": {"nodeName": "node"}})
            else:
                condition |= {"reason": "Unschedulable", "message": FULL}
            self.set(name, {"status": {"phase": "Pending", "conditions": [condition]}})
        for name in self.bound():
            if name in self.broken:
                entry = {"name": "main", "state": {"waiting": {"reason": "ImagePullBackOff"}}}
                self.set(name, {"status": {"phase": "Pending", "containerStatuses": [entry]}})
            elif self.pods_of_job()[name]["status"]["phase"] == "Pending":
                ready = [{"type": "Ready", "status": "True"}]
                self.set(name, {"status": {"phase": "Running", "conditions": ready}})

    def preempt(self, number: int = 1) -> Self:
        """Pods of a higher priority take room; the last workers go."""
        self.room -= number
        active = [name for name in self.bound() if name != LAUNCHER]
        active = [name for name in active if is_active(self.pods_of_job()[name])]
        for name in active[::-1][: max(len(self.bound()) - self.room, 0)]:
            self.disrupt(name)
        return self

    def disrupt(self, name: str) -> None:
        entry = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
        self.set(name, {"metadata": {"deletionTimestamp": rfc3339(at(self.now + 30))}})
        self.set(name, {"status": {"conditions": [entry]}})

    def fail(self, name: str, code: int = 137) -> Self:
        """The container of this pod ends with an exit code."""
        container = self.pods_of_job()[name]["spec"]["containers"][0]["name"]
        entry = {"name": container, "state": {"terminated": {"exitCode": code}}}
        self.set(name, {"status": {"phase": "Failed", "containerStatuses": [entry]}})
        return self

    # ---- the job ----

    def planned(self) -> Plan:
        """One plan takes effect."""
        made = self.plan(self.clock)
        check_that_new_pods_are_last(made)
        self.apply(made)
        self.events += made.events
        self.wait = made.requeue_after_s
        return made

    def rest(self) -> Self:
        """The job and the cluster go on until nothing changes any more, and nothing is awaited."""
        for _ in range(2000):
            before = str(self.children)
            self.tick()
            made = self.planned()
            if made.actions or made.status is not None or str(self.children) != before:
                self.now += 0.1
                continue
            if self.wait is None:
                return self
            self.now += max(self.wait, 0.01)
        raise AssertionError(f"does not rest: {self.status}")

    # ---- what tests ask ----

    def stalled(self) -> tuple[str, str]:
        """(reason, message) of the condition Stalled."""
        condition = self.condition("Stalled")
        return condition.get("reason", ""), condition.get("message", "")

    def told_of(self, reason: str) -> list[str]:
        """The messages of the events with this reason."""
        return [event.message for event in self.events if event.reason == reason]

    def told(self) -> dict[str, Any]:
        return dict(self.status.get("elastic") or {})

    def running(self) -> list[int]:
        """The indices of the workers that run."""
        return sorted(
            int(name.removeprefix(f"{JOB}-worker-")) for name in self.bound() if name != LAUNCHER
        )

    def queue(self) -> list[str]:
        """The wanted workers that take no room and that the launcher does not have."""
        taken = {*self.bound(), *self.status.get("currentWorkers", [])}
        return [name for name in self.status.get("targetWorkers", []) if name not in taken]
