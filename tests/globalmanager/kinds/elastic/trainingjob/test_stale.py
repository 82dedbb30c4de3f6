"""A plan on an old cache makes no worker of a TrainingJob twice and loses no healthy one.

The API server here does what the real one does with the engine's requests: a name is free or taken,
a deletion names a uid, a replacement names a version, and a status is written only onto the status
from which it was computed (tests/globalmanager/kinds/training/test_stale.py). Caches are up to four
seconds old: less than the time after which a missing pod counts as lost. A plan may stop after any
action, as by a kill, and commands are forgotten then.
"""

import random
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import pytest

from edgeai.api.elastic import GROUP, SCALE_INS, SCALE_OUTS
from edgeai.api.resources import CONFIG_MAPS, PODS, Object, ObjectRef, ResourceType, ref_of
from edgeai.times import rfc3339
from globalmanager.contract import (
    Action,
    Adopt,
    Create,
    Delete,
    Observed,
    Patch,
    PatchStatus,
    Plan,
    Replace,
    Result,
)
from globalmanager.kinds.elastic.trainingjob import KIND
from globalmanager.kinds.shared.objects import owner_reference
from tests.globalmanager.kinds.elastic.world import JOB, LAUNCHER, example, status_by_kind, worker
from tests.globalmanager.kinds.training.test_stale import Rejected
from tests.support.world import SETTINGS, at, copied, merged

LEAST, MOST = 2, 6
_STALE_S: Final = 4
_EVENTS_S: Final = 150
_REST_S: Final = 600


class Api:
    """The job, its children and its scalers, and what they were at each second."""

    def __init__(self, job: Object) -> None:
        self.now = 0
        self.job = job
        self.objects: dict[ObjectRef, Object] = {}
        self.history: list[tuple[Object, dict[ObjectRef, Object]]] = []
        self.listed: set[str] = set()
        """The workers that the launcher's list ever had."""
        self.made: Counter[str] = Counter()
        """Worker -> how often its pod was made after the launcher had the worker."""
        self.deleted_healthy: list[str] = []
        self._versions = 0

    def tick(self) -> None:
        self.history.append((self.job, dict(self.objects)))
        self.now += 1

    def seen(self, age: int) -> tuple[Object, dict[ObjectRef, Object]]:
        """What a cache of this age, in seconds, has."""
        return self.history[max(0, len(self.history) - age)] if age else (self.job, self.objects)

    def _put(self, ref: ObjectRef, object_: Object) -> None:
        self._versions += 1
        metadata = {**object_["metadata"], "resourceVersion": str(self._versions)}
        self.objects[ref] = {**object_, "metadata": metadata}
        if ref.type == CONFIG_MAPS:
            hosts = object_["data"]["hostfile"].splitlines()
            self.listed.update(line.partition(":")[0] for line in hosts)

    # ---- the engine's requests ----

    def act(self, action: Action, known: Mapping[ObjectRef, Object], observed: Observed) -> None:
        match action:
            case Create(type_, object_):
                self.create(type_, object_)
            case Replace(type_, object_):
                ref = ref_of(type_, object_)
                self._expect(ref, object_["metadata"]["resourceVersion"])
                self._put(ref, copied(object_))
            case Delete(ref, uid):
                self._delete(ref, uid)
            case Patch(ref, patch):
                self._expect(ref, known[ref]["metadata"]["resourceVersion"])
                self._put(ref, merged(self.objects[ref], patch))
            case Adopt(ref):
                self._expect(ref, known[ref]["metadata"]["resourceVersion"])
                owners = {"ownerReferences": [owner_reference(observed)]}
                self._put(ref, merged(self.objects[ref], {"metadata": owners}))
            case PatchStatus(ref, _, status):
                scaler = self.objects.get(ref)
                if scaler is None or scaler.get("status") != known[ref].get("status"):
                    raise Rejected
                self.set_status(ref, status)

    def set_status(self, ref: ObjectRef, patch: Any) -> None:
        object_ = self.objects[ref]
        self._put(ref, {**object_, "status": merged(object_.get("status"), patch)})

    def _expect(self, ref: ObjectRef, version: str) -> None:
        if ref not in self.objects or self.objects[ref]["metadata"]["resourceVersion"] != version:
            raise Rejected

    def create(self, type_: ResourceType, object_: Object) -> None:
        ref = ref_of(type_, object_)
        if ref in self.objects:
            return
        made = copied(object_)
        made["metadata"]["uid"] = f"uid-{self._versions}"
        made["metadata"]["creationTimestamp"] = rfc3339(at(self.now))
        if type_ == PODS:
            made["status"] = {"phase": "Pending"}
            self.made[ref.name] += ref.name in self.listed
        self._put(ref, made)

    def _delete(self, ref: ObjectRef, uid: str) -> None:
        child = self.objects.get(ref)
        if child is None:
            return
        if child["metadata"]["uid"] != uid:
            raise Rejected
        is_wanted = ref.name in self.job["status"]["targetWorkers"]
        if ref.type == PODS and child["status"]["phase"] == "Running" and is_wanted:
            self.deleted_healthy.append(ref.name)
        del self.objects[ref]

    def write_status(self, patch: Any, basis: Any) -> None:
        if self.job.get("status") != basis:
            raise Rejected
        self.job = {**self.job, "status": merged(basis, patch)}
        target = self.job["status"].get("targetWorkers", [])
        assert LEAST <= len(target) <= MOST or not target

    # ---- what happens ----

    def becomes(self, name: str, phase: str, **state: Any) -> None:
        ref = ObjectRef(PODS, "default", name)
        pod = self.objects.get(ref)
        if pod is not None and pod["status"]["phase"] != "Failed":
            self._put(ref, {**pod, "status": {"phase": phase, **state}})

    def vanishes(self, name: str) -> None:
        self.objects.pop(ObjectRef(PODS, "default", name), None)

    def scale(self, type_: ResourceType, content: dict[str, Any]) -> None:
        metadata = {"name": f"s{self.now}", "namespace": "default"}
        spec = {"selector": {"name": JOB}, "timeout": 20, **content}
        identity = {"apiVersion": f"{GROUP}/v1alpha1", "kind": type_.kind}
        self.create(type_, {**identity, "metadata": metadata, "spec": spec})

    @property
    def scalers(self) -> list[ObjectRef]:
        return [ref for ref in self.objects if ref.type in (SCALE_OUTS, SCALE_INS)]

    @property
    def pods(self) -> list[str]:
        return sorted(ref.name for ref in self.objects if ref.type == PODS and ref.name != LAUNCHER)


class StaleElastic:
    """Plans and applies as the engine does. Args: confirms: whether a GET precedes changes"""

    def __init__(self, api: Api, dice: random.Random, *, confirms: bool) -> None:
        self._api, self._dice, self._confirms = api, dice, confirms
        self.results: dict[str, Result | None] = {}

    def reconcile(self, *, is_fresh: bool) -> bool:
        """Returns: whether the plan had something to do"""
        job_age, age = (0 if is_fresh else self._dice.randint(0, _STALE_S) for _ in range(2))
        (object_, _), (_, objects) = self._api.seen(job_age), self._api.seen(age)
        self._plan_scalers(objects)
        decoded = KIND.decode(KIND.definition.resources[0], copied(object_))
        scalers = {r: o for r, o in objects.items() if r.type in (SCALE_OUTS, SCALE_INS)}

        def since(item: tuple[ObjectRef, Object]) -> tuple[str, str]:
            return item[1]["metadata"]["creationTimestamp"], item[0].name

        observed = Observed(
            **{name: getattr(decoded, name) for name in ("type", "object", "spec", "invalid")},
            children={r: copied(o) for r, o in objects.items() if r not in scalers},
            pods=(),
            references={},
            contacts={},
            settings=SETTINGS,
            scalers={r: copied(o) for r, o in sorted(scalers.items(), key=since)},
            executions=dict(self.results),
        )
        plan = KIND.plan(observed, self._now())
        try:
            self._apply(plan, observed, object_, objects, is_fresh=is_fresh)
        except Rejected:
            return True
        return bool(plan.actions or plan.status or plan.requeue_after_s)

    def _plan_scalers(self, objects: Mapping[ObjectRef, Object]) -> None:
        """What the kinds of the scalers do."""
        for ref in self._api.scalers:
            if (scaler := objects.get(ref)) is None:
                continue
            status = status_by_kind(ref, copied(scaler), copied(self._api.job), self._now())
            if status is not None and self._api.objects[ref].get("status") == scaler.get("status"):
                self._api.set_status(ref, status)

    def _now(self) -> datetime:
        return at(self._api.now)

    def _apply(
        self,
        plan: Plan,
        observed: Observed,
        object_: Object,
        known: Mapping[ObjectRef, Object],
        *,
        is_fresh: bool,
    ) -> None:
        left = len(plan.actions) + 1
        if not is_fresh and self._dice.random() < 0.2:
            left = self._dice.randint(0, left)
            self.results = {}
        for stage in plan.stages:
            is_change = any(isinstance(action, Create | Delete) for action in stage)
            if (
                is_change
                and self._confirms
                and self._api.job.get("status") != object_.get("status")
            ):
                raise Rejected
            for action in self._dice.sample(stage, len(stage)):
                if left == 0:
                    return
                left -= 1
                self._api.act(action, known, observed)
        if left and plan.status is not None:
            self._api.write_status(plan.status, object_.get("status"))
        if left:
            kept = {key: self.results.get(key) for key in plan.executions}
            ended = Result(exit_code=0)
            self.results = {
                key: ended if known_ is not None or self._dice.random() < 0.5 or is_fresh else None
                for key, known_ in kept.items()
            }

    def _confirm(self, object_: Object) -> None:
        """The engine's GET of the job before a change of its children."""
        if self._confirms and self._api.job.get("status") != object_.get("status"):
            raise Rejected


def happen(api: Api, dice: random.Random) -> None:
    """One event, or none."""
    index = dice.randrange(10)
    match dice.randrange(24):
        case 0 | 1 | 2 | 3 | 4 | 5 | 6:
            api.becomes(worker(index), "Running")
        case 7 | 8 | 9:
            api.becomes(LAUNCHER, "Running")
        case 10:
            api.becomes(worker(index), "Failed", reason="Evicted")
        case 11 if dice.random() < 0.5:
            api.vanishes(worker(index))
        case 12 if dice.random() < 0.3:
            api.becomes(LAUNCHER, "Failed")
        case 13 if len(api.scalers) < 8:
            api.scale(SCALE_OUTS, {"toAdd": {"count": dice.randint(1, 2)}})
        case 14 if len(api.scalers) < 8:
            api.scale(SCALE_INS, {"toDelete": {"count": 1}})
        case 15 if api.scalers and dice.random() < 0.3:
            del api.objects[dice.choice(api.scalers)]


def after_much(seed: int, *, confirms: bool = True) -> Api:
    """Events and plans on old caches, then plans on fresh ones until nothing changes."""
    dice = random.Random(seed)
    limits = {"replicas": 3, "minReplicas": LEAST, "maxReplicas": MOST}
    job = example(worker=limits, restartPolicy="OnFailure", backoffLimit=1000)
    api = Api(job)
    manager = StaleElastic(api, dice, confirms=confirms)
    for _ in range(_EVENTS_S):
        api.tick()
        happen(api, dice)
        manager.reconcile(is_fresh=False)
    for _ in range(_REST_S):
        api.tick()
        for name in (*api.pods, LAUNCHER):
            api.becomes(name, "Running")
        if not manager.reconcile(is_fresh=True):
            return api
    raise AssertionError("does not come to rest")


@pytest.mark.parametrize("seed", range(12))
def test_no_worker_is_made_again_and_the_limits_hold(seed: int) -> None:
    api = after_much(seed)
    state = api.job["status"]
    assert +api.made == Counter(), "made again under a name that the launcher had"
    assert api.deleted_healthy == []
    assert (state["phase"], state.get("currentScaler")) == ("Running", None)
    assert api.pods == sorted(state["targetWorkers"])
    assert sorted(state["currentWorkers"]) == api.pods
    config = api.objects[ObjectRef(CONFIG_MAPS, "default", f"{JOB}-config")]
    hosts = [line.partition(":")[0] for line in config["data"]["hostfile"].splitlines()]
    assert sorted(hosts) == api.pods
    ends = {api.objects[ref]["status"]["phase"] for ref in api.scalers}
    assert ends <= {"ScaleSucceeded", "ScaleFailed"}


def test_the_histories_scale_replace_and_restart() -> None:
    states = [after_much(seed).job["status"] for seed in range(4)]
    assert sum(state.get("replacedWorkers", 0) for state in states) > 4
    assert sum(state.get("restartCount", 0) for state in states) > 0
    assert len({len(state["targetWorkers"]) for state in states}) > 1


def test_without_the_get_before_a_change_an_old_cache_does_harm() -> None:
    def harm(seed: int) -> bool:
        api = after_much(seed, confirms=False)
        return bool(+api.made) or bool(api.deleted_healthy)

    assert any(harm(seed) for seed in range(12))
