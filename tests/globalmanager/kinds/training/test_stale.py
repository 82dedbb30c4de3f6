"""A plan on an old cache makes no pod twice and counts no failure twice.

The API server here does what the real one does with the engine's requests: a name is free or taken,
a deletion names a uid, a status is written only onto the status from which it was computed. A plan
may see pods and Services of any earlier moment. After a restart it may also see the job as it was
earlier, but the engine creates nothing before a GET has told the same spec and status
(tests/globalmanager/engine/test_stale.py). A plan may stop after any action, as by a kill.
"""

import random
from collections import Counter
from typing import Any, Final

import pytest

from edgeai.api.resources import PODS, Object, ObjectRef, ref_of
from edgeai.times import rfc3339
from globalmanager.contract import Create, Delete, Observed, Plan
from globalmanager.kinds.shared.attempts import attempt_of
from globalmanager.kinds.training.pytorchjob import KIND
from tests.globalmanager.kinds.training.samples import ended, pytorch_spec
from tests.support.world import SETTINGS, at, copied, job, merged

NAMES: Final = ("mnist-master-0", "mnist-worker-0", "mnist-worker-1")
_STEP_S: Final = 100.0  # longer than any pause before a restart


class Rejected(Exception):
    """The API server refuses the request. The engine plans again."""


class ApiServer:
    """One job with its children, and all their earlier states."""

    def __init__(self, object_: Object) -> None:
        self.jobs = [object_]
        self.children: list[dict[ObjectRef, Object]] = [{}]
        self.made: Counter[tuple[str, int]] = Counter()  # (replica, attempt)
        self.failed: Counter[str] = Counter()
        self.deleted_running: list[str] = []
        self._uids = 0

    @property
    def job(self) -> Object:
        return self.jobs[-1]

    @property
    def present(self) -> dict[ObjectRef, Object]:
        return self.children[-1]

    def _put(self, ref: ObjectRef, child: Object | None) -> None:
        changed = {**self.present, ref: child}
        self.children.append({r: c for r, c in changed.items() if c is not None})

    # ---- the engine's requests ----

    def create(self, object_: Object, type_: Any) -> None:
        ref = ref_of(type_, object_)
        if ref in self.present:
            return  # AlreadyExists, and the controller is the job: the engine goes on
        self._uids += 1
        made = copied(object_)
        made["metadata"]["uid"] = f"child-{self._uids}"
        made["metadata"]["creationTimestamp"] = rfc3339(at(0))
        if type_ == PODS:
            made["status"] = {"phase": "Pending"}
            self.made[ref.name, attempt_of(made)] += 1
        self._put(ref, made)

    def delete(self, ref: ObjectRef, uid: str) -> None:
        child = self.present.get(ref)
        if child is None:
            return
        if child["metadata"]["uid"] != uid:
            raise Rejected
        if ref.type == PODS and child["status"]["phase"] != "Failed":
            self.deleted_running.append(ref.name)
        self._put(ref, None)

    def write_status(self, patch: Any, basis: Any) -> None:
        if self.job.get("status") != basis:
            raise Rejected
        self.jobs.append({**self.job, "status": merged(basis, patch)})

    # ---- what happens to pods ----

    def pod_becomes(self, name: str, phase: str, **state: Any) -> None:
        ref = ObjectRef(PODS, "default", name)
        pod = self.present.get(ref)
        if pod is None or pod["status"]["phase"] == "Failed":
            return
        if phase == "Failed":
            self.failed[name] += 1
        self._put(ref, {**pod, "status": {"phase": phase, **state}})


class StaleTraining:
    """Plans and applies as the engine does.

    Args:
        dice: chooses how old the caches are, and where a kill ends a plan
        confirms: whether a GET confirms the job before a creation
    """

    def __init__(self, api: ApiServer, dice: random.Random, *, confirms: bool) -> None:
        self._api, self._dice, self._confirms = api, dice, confirms
        self._known_children = 0
        self._known_job = 0

    def restart(self) -> None:
        """Another replica begins to lead, whose watches are late."""
        self._known_children = self._dice.randint(0, len(self._api.children) - 1)
        self._known_job = self._dice.randint(0, len(self._api.jobs) - 1)

    def reconcile(self, now_s: float, *, is_fresh: bool = False) -> bool:
        """Returns: whether the plan had something to do"""
        newest_children, newest_job = len(self._api.children) - 1, len(self._api.jobs) - 1
        if is_fresh:
            self._known_children, self._known_job = newest_children, newest_job
        else:
            self._known_children = self._dice.randint(self._known_children, newest_children)
            self._known_job = self._dice.randint(self._known_job, newest_job)
        object_ = self._api.jobs[self._known_job]
        decoded = KIND.decode(KIND.definition.resources[0], copied(object_))
        known = self._api.children[self._known_children]
        observed = Observed(
            **{name: getattr(decoded, name) for name in ("type", "object", "spec", "invalid")},
            children={ref: copied(child) for ref, child in known.items()},
            pods=(),
            references={},
            contacts={},
            settings=SETTINGS,
        )
        plan = KIND.plan(observed, at(now_s))
        try:
            self._apply(plan, object_, is_fresh=is_fresh)
        except Rejected:
            return True
        return bool(plan.actions or plan.status)

    def _apply(self, plan: Plan, object_: Object, *, is_fresh: bool) -> None:
        left = len(plan.actions) + 1
        if not is_fresh and self._dice.random() < 0.3:
            left = self._dice.randint(0, left)
        for stage in plan.stages:
            if any(isinstance(action, Create) for action in stage):
                self._confirm(object_)
            for action in self._dice.sample(stage, len(stage)):
                if left == 0:
                    return
                left -= 1
                if isinstance(action, Create):
                    self._api.create(action.object, action.type)
                elif isinstance(action, Delete):
                    self._api.delete(action.ref, action.uid)
        if left and plan.status is not None:
            self._api.write_status(plan.status, object_.get("status"))
            self._known_job = len(self._api.jobs) - 1  # the answer is in the cache

    def _confirm(self, object_: Object) -> None:
        """The engine's GET of the job before it creates a child."""
        if self._confirms and self._api.job.get("status") != object_.get("status"):
            self._known_job = len(self._api.jobs) - 1
            raise Rejected


def after_much(seed: int, scope: str, *, confirms: bool = True) -> ApiServer:
    """120 events and plans on old caches, then plans on fresh ones until nothing changes."""
    dice = random.Random(seed)
    spec = pytorch_spec(policy="ExitCode", run={"restartScope": scope, "backoffLimit": 1000})
    api = ApiServer(job("mnist", spec))
    manager = StaleTraining(api, dice, confirms=confirms)
    for step in range(120):
        event = dice.random()
        if event < 0.1:
            api.pod_becomes(dice.choice(NAMES), "Running")
        elif event < 0.15:
            api.pod_becomes(dice.choice(NAMES), "Failed", **ended(137))
        elif event < 0.2:
            manager.restart()
        else:
            manager.reconcile(step * _STEP_S)
    for _ in range(20):
        if not manager.reconcile(10**6, is_fresh=True):
            return api
    raise AssertionError("does not settle")


@pytest.mark.parametrize("seed", range(60))
def test_each_failure_counts_once_and_makes_one_pod(seed: int) -> None:
    api = after_much(seed, "Replica")
    assert api.job["status"].get("restarts", {}) == dict(api.failed)
    attempts = [(name, number) for name in NAMES for number in range(api.failed[name] + 1)]
    assert api.made == Counter(attempts)
    assert api.deleted_running == []


@pytest.mark.parametrize("seed", range(60))
def test_each_restart_of_the_whole_job_makes_at_most_one_pod_of_a_replica(seed: int) -> None:
    api = after_much(seed, "Job")
    restarts = api.job["status"].get("jobRestarts", 0)
    assert restarts <= api.failed.total()
    assert set(api.made.values()) == {1}
    assert {name for name, number in api.made if number == restarts} == {*NAMES}
    assert max(number for _, number in api.made) == restarts


def test_without_the_get_before_a_creation_an_old_cache_makes_a_pod_twice() -> None:
    made = (after_much(seed, "Replica", confirms=False).made for seed in range(60))
    assert any(set(each.values()) != {1} for each in made)
