"""Samples of elastic training jobs."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Self

import msgspec

from edgeai.api.elastic import GROUP, SCALE_INS, SCALE_OUTS
from edgeai.api.resources import PODS, Object, ObjectRef, ref_of
from edgeai.times import rfc3339
from globalmanager.contract import (
    Action,
    Adopt,
    Create,
    Execution,
    Observed,
    PatchStatus,
    Plan,
    Result,
)
from globalmanager.kinds.elastic.scalein import KIND as SCALE_IN
from globalmanager.kinds.elastic.scaleout import KIND as SCALE_OUT
from globalmanager.kinds.elastic.trainingjob import KIND
from globalmanager.kinds.shared.objects import owner_reference
from tests.support.manifests import manifest
from tests.support.world import NOW, World, at, copied, from_yaml, merged

SCALER_KINDS: Final = {SCALE_OUTS: SCALE_OUT, SCALE_INS: SCALE_IN}
JOB: Final = "elastic-training"
LAUNCHER: Final = f"{JOB}-launcher"
IMAGE: Final = "registry.cn-huhehaote.aliyuncs.com/lumo/horovod:master-tf2.1.0-torch1.4.0-mxnet"

# examples/training_job.yaml of the et-operator
EXAMPLE: Final = f"""
apiVersion: kai.alibabacloud.com/v1alpha1
kind: TrainingJob
metadata:
  name: {JOB}
  namespace: default
spec:
  cleanPodPolicy: Running
  etReplicaSpecs:
    launcher:
      replicas: 1
      template:
        spec:
          containers:
          - command:
            - sh
            - -c
            - horovodrun -np 2 --min-np 1 --max-np 9 --host-discovery-script
              /etc/edl/discover_hosts.sh python /examples/elastic/tensorflow2_mnist_elastic.py
            image: {IMAGE}
            imagePullPolicy: Always
            name: mnist-elastic
    worker:
      maxReplicas: 9
      minReplicas: 1
      replicas: 2
      template:
        spec:
          containers:
          - image: {IMAGE}
            imagePullPolicy: Always
            name: mnist-elastic
"""


def status_by_kind(ref: ObjectRef, scaler: Object, job: Object, now: datetime) -> Any:
    """The status patch that the scaler's own kind plans for a scaler of the job, or None."""
    world = World(SCALER_KINDS[ref.type], scaler)
    world._others[ref_of(KIND.definition.resources[0], job)] = job
    return world.plan(now).status


class ElasticWorld(World):
    """A TrainingJob with its scalers. Commands in pods end when the test says so."""

    def __init__(self, object_: Object) -> None:
        super().__init__(KIND, object_)
        self.scalers: dict[ObjectRef, Object] = {}
        self.executions: dict[str, tuple[Execution, Result | None]] = {}
        self.results: list[Result] = []
        """What the next commands end with; a command without a result goes on."""
        self.now = 0.0
        """Since NOW, for tests in which time passes by itself."""
        self.wait: float | None = None
        """Of the last plan of those tests."""

    @property
    def clock(self) -> datetime:
        return at(self.now)

    def pod_of(self, name: str) -> Object | None:
        return self.children.get(ObjectRef(PODS, "default", name))

    def pods_of_job(self) -> dict[str, Object]:
        return {ref.name: pod for ref, pod in self.children.items() if ref.type == PODS}

    # ---- scalers --------------------------------------------------------------------------------

    def scale_out(self, count: int, name: str = "out", *, age: int = 0, **spec: Any) -> Self:
        return self._scale(SCALE_OUTS, name, age, {"toAdd": {"count": count}, **spec})

    def scale_in(
        self, *pods: str, count: int = 0, name: str = "in", age: int = 0, **spec: Any
    ) -> Self:
        given: dict[str, Any] = {"podNames": list(pods)} if pods else {"count": count}
        return self._scale(SCALE_INS, name, age, {"toDelete": given, **spec})

    def _scale(self, type_: Any, name: str, age: int, spec: dict[str, Any]) -> Self:
        """Args: age: seconds; a greater one is older"""
        spec = {"selector": {"name": JOB}, **spec}
        made = manifest(f"{GROUP}/v1alpha1 {type_.kind}", name, "default", spec=spec)
        made["metadata"] |= {"uid": f"uid-of-{name}", "creationTimestamp": rfc3339(at(-age))}
        self.scalers[ref_of(type_, made)] = made
        return self

    def scaler(self, name: str) -> Object:
        return next(each for ref, each in self.scalers.items() if ref.name == name)

    def state(self, name: str) -> dict[str, Any]:
        """The status of a scaler."""
        return dict(self.scaler(name).get("status") or {})

    def history(self, name: str) -> list[str]:
        """The conditions of a scaler."""
        return [one["type"] for one in self.state(name).get("conditions") or ()]

    def drop(self, name: str) -> Self:
        """The user deletes a scaler."""
        self.scalers = {ref: each for ref, each in self.scalers.items() if ref.name != name}
        return self

    # ---- planning -------------------------------------------------------------------------------

    def observed(self) -> Observed:
        def age(item: tuple[ObjectRef, Object]) -> tuple[str, str]:
            metadata = item[1]["metadata"]
            return str(metadata.get("creationTimestamp", "")), str(metadata["name"])

        seen = super().observed()
        ordered = {ref: copied(each) for ref, each in sorted(self.scalers.items(), key=age)}
        executions = {key: result for key, (_, result) in self.executions.items()}
        return msgspec.structs.replace(seen, scalers=ordered, executions=executions)

    def plan(self, now: datetime = NOW) -> Plan:
        self._plan_scalers(now)
        return super().plan(now)

    def _plan_scalers(self, now: datetime) -> None:
        """What the kinds of the scalers do. A scaler that they have not accepted never begins."""
        for ref, scaler in self.scalers.items():
            status = status_by_kind(ref, scaler, self.object, now)
            if status is not None:
                self.scalers[ref] = merged(scaler, {"status": status})

    def apply(self, plan: Plan, *, actions: int | None = None) -> Self:
        super().apply(plan, actions=actions)
        if actions is None:
            self._execute(plan.executions)
        return self

    def _execute(self, wanted: Mapping[str, Execution]) -> None:
        kept = {key: each for key, each in self.executions.items() if wanted.get(key) == each[0]}
        for key, execution in wanted.items():
            if key not in kept:
                kept[key] = (execution, self.results.pop(0) if self.results else None)
        self.executions = kept

    def end(self, **result: Any) -> Self:
        """All commands that go on end with this."""
        self.executions = {
            key: (execution, known or Result(**result))
            for key, (execution, known) in self.executions.items()
        }
        return self

    def crash(self) -> Self:
        """The GlobalManager restarts: it forgets what commands ended with."""
        self.executions = {}
        return self

    def _act(self, action: Action) -> None:
        match action:
            case Adopt():
                scaler = self.scalers[action.ref]
                assert scaler["metadata"]["uid"] == action.uid
                assert not scaler["metadata"].get("ownerReferences")
                owners = {"ownerReferences": [owner_reference(self.observed())]}
                self.scalers[action.ref] = merged(scaler, {"metadata": owners})
            case PatchStatus() if action.ref in self.scalers:
                scaler = self.scalers[action.ref]
                assert scaler["metadata"]["uid"] == action.uid
                self.scalers[action.ref] = merged(scaler, {"status": action.status})
            case Create(type_, object_) if type_ in (SCALE_OUTS, SCALE_INS):
                self._uids += 1
                created = {"creationTimestamp": rfc3339(self._planned_at)}
                made = merged(object_, {"metadata": {**created, "uid": f"scaler-{self._uids}"}})
                self.scalers.setdefault(ref_of(type_, made), made)
            case _:
                super()._act(action)
                if isinstance(action, Create) and action.type == PODS:
                    ref = ref_of(PODS, action.object)
                    stamp = {"creationTimestamp": rfc3339(self._planned_at)}
                    self.children[ref] = merged(self.children[ref], {"metadata": stamp})

    def step(self, now: datetime = NOW) -> Plan | None:
        plan = self.plan(now)
        if plan.actions or plan.status is not None or plan.executions.keys() - self.executions:
            self.apply(plan)
            return plan
        self._execute(plan.executions)
        self.wait = plan.requeue_after_s
        return None

    def commands(self) -> list[str]:
        """What runs in pods: the standard input, or the arguments."""
        return [
            execution.stdin.decode() or " ".join(execution.command[3:])
            for execution, _ in self.executions.values()
        ]

    def workers(self) -> list[int]:
        """The indices of the workers' pods."""
        prefix = f"Pod/{JOB}-worker-"
        return sorted(int(name[len(prefix) :]) for name in self.names() if name.startswith(prefix))

    def hosts(self) -> list[str]:
        data = self.child("ConfigMap", f"{JOB}-config")["data"]
        return [line.partition(":")[0] for line in data["hostfile"].splitlines()]


def training(job: Object | None = None) -> ElasticWorld:
    """A job whose workers and launcher run."""
    world = ElasticWorld(job or example()).settle()
    return world.pods_become("Running").settle().pods_become("Running").settle()


def worker(index: int) -> str:
    return f"{JOB}-worker-{index}"


def example(
    *,
    worker: dict[str, Any] | None = None,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> Object:
    """The example with these changes. Args: worker: fields of etReplicaSpecs.worker"""
    job = from_yaml(EXAMPLE)
    job["metadata"]["annotations"] = annotations or {}
    job["spec"] |= spec
    job["spec"]["etReplicaSpecs"]["worker"] |= worker or {}
    return job


def created(job: Object | None = None) -> World:
    """A job whose workers exist."""
    return World(KIND, job or example()).settle()


def launched(job: Object | None = None) -> World:
    """A job whose workers run, and whose launcher exists."""
    return created(job).pods_become("Running").settle()


def running(job: Object | None = None) -> World:
    """A job whose workers and launcher run."""
    return launched(job).pods_become("Running").settle()
