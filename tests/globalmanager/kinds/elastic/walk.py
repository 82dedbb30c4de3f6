"""A TrainingJob to which everything happens that can happen, in any order."""

import random
from typing import Any, Final, Self

from edgeai.api.resources import PODS, ObjectRef
from edgeai.times import rfc3339
from globalmanager.contract import Action, Delete, Plan
from tests.globalmanager.kinds.elastic.world import JOB, LAUNCHER, ElasticWorld, example, worker
from tests.support.world import at, merged

ENDS: Final = ("ScaleSucceeded", "ScaleFailed")
POLICIES: Final = (None, "OnFailure", "ExitCode", "Always", "Never")
GONE: Final = "gone"
DELETED: Final = "deleted"
FAILED: Final = {"phase": "Failed"}
SUCCEEDED: Final = {"phase": "Succeeded"}
RUNNING: Final = {"phase": "Running"}
UNREADY: Final = {**RUNNING, "conditions": [{"type": "Ready", "status": "False"}]}
FATES: Final[list[Any]] = [
    *({**FAILED, "reason": "Evicted"}, FAILED, SUCCEEDED, GONE, DELETED),
    *(UNREADY, RUNNING, {"phase": "Pending"}, {"phase": "Unknown"}),
]
LAUNCHER_FATES: Final[list[Any]] = [*[FAILED] * 4, *[GONE] * 3, *[DELETED] * 5, SUCCEEDED]


class Walk(ElasticWorld):
    """One job and its scalers. The methods `on_…` are the events.

    Args: random_: decides which events come, and what they do
    """

    def __init__(self, random_: random.Random) -> None:
        self.random = random_
        pick = random_.choice
        low, start, high = sorted(random_.randint(1, 6) for _ in range(3))
        given: dict[str, Any] = {"replicas": start, "restartPolicy": pick(POLICIES)}
        given["minReplicas"] = low if random_.random() < 0.7 else None
        given["maxReplicas"] = high if random_.random() < 0.7 else None
        given = {key: each for key, each in given.items() if each is not None}
        job = example(
            launcherAttachMode=pick(["ssh", "kubexec"]),
            restartPolicy=pick(["Never", "OnFailure"]),
            backoffLimit=pick([0, 1, 100, 100]),
            cleanPodPolicy=pick(["All", "Running", "None"]),
        )
        spec = job["spec"]["etReplicaSpecs"]["worker"]
        for key in ("minReplicas", "maxReplicas"):
            del spec[key]
        spec |= given
        super().__init__(job)
        self.made = 0
        self.sick = False
        """Whether half of the workers never run."""
        self.has_new_limits = False
        self.spoiled: set[ObjectRef] = set()
        self.log: list[str] = []
        self.terminates = True
        self.lists: list[tuple[float, str, tuple[str, ...]]] = []
        """When the launcher could read which list: seconds, uid of the launcher, hosts."""

    # ---- what plans do ----

    def _act(self, action: Action) -> None:
        ended: ObjectRef | None = None
        if isinstance(action, Delete) and action.ref.type == PODS:
            pod = self.children[action.ref]
            is_over = pod.get("status", {}).get("phase") in ("Failed", "Succeeded", None)
            assert is_over or "deletionTimestamp" not in pod["metadata"], "deleted twice"
            ended = action.ref if is_over else None
        super()._act(action)
        if ended is not None:
            del self.children[ended]
        self.look()

    def look(self) -> None:
        launcher = self.pod_of(LAUNCHER)
        config = next((c for r, c in self.children.items() if r.name == f"{JOB}-config"), None)
        if launcher is None or config is None or "deletionTimestamp" in launcher["metadata"]:
            return
        if "hostfile" not in config["data"]:
            self.lists.append((self.now, "", ()))
            return
        uid, hosts = launcher["metadata"]["uid"], tuple(self.hosts())
        if not self.lists or self.lists[-1][1:] != (uid, hosts):
            self.lists.append((self.now, uid, hosts))

    def apply(self, plan: Plan, *, actions: int | None = None) -> Self:
        """Scaling keeps the limits."""
        before = len(self.status.get("targetWorkers") or ())
        super().apply(plan, actions=actions)
        worker_spec = self.object["spec"]["etReplicaSpecs"]["worker"]
        after = len(self.status.get("targetWorkers") or ())
        if actions is None and before and not self.spoiled and not self.has_new_limits:
            if after > before:
                assert after <= worker_spec.get("maxReplicas", after)
            if after < before and worker_spec.get("restartPolicy") != "Never":
                assert after >= worker_spec.get("minReplicas", 1)
        return self

    def plan_on(self, *, cut: bool) -> None:
        """One plan takes effect; the GlobalManager may be killed in the middle of it."""
        if cut and (plan := self.plan(self.clock)).actions:
            number = self.random.randint(0, len(plan.actions))
            self.log.append(f"cut {number}/{len(plan.actions)}")
            self.apply(plan, actions=number)
            self.crash()
        else:
            self.step(self.clock)

    # ---- what the world does ----

    def pods_named(self) -> list[ObjectRef]:
        return [ref for ref in self.children if ref.type == PODS]

    def befall(self, ref: ObjectRef, fate: Any) -> None:
        """Args: fate: a status, GONE, or DELETED"""
        pod = self.children[ref]
        if fate == GONE:
            del self.children[ref]
        elif fate == DELETED:
            end = rfc3339(at(self.now + 30))
            self.children[ref] = merged(pod, {"metadata": {"deletionTimestamp": end}})
        else:
            self.children[ref] = {**pod, "status": fate}

    def healthy(self) -> None:
        """What a healthy cluster does in time."""
        for ref in self.pods_named():
            pod = self.children[ref]
            phase = pod.get("status", {}).get("phase")
            if "deletionTimestamp" in pod["metadata"]:
                del self.children[ref]
            elif self.sick and ref.name != LAUNCHER and int(ref.name[-1]) % 2:
                if phase == "Running":
                    self.befall(ref, {"phase": "Pending"})
            elif phase not in ("Failed", "Succeeded"):
                self.befall(ref, {"phase": "Running"})
        self.end(exit_code=0)

    def event(self) -> None:
        events = [each for each in dir(self) if each.startswith("on_")]
        name = self.random.choice(events)
        self.log.append(f"{self.now}: {name}")
        getattr(self, name)()

    def on_time(self) -> None:
        self.now += self.random.choice([1, 5, 11, 31, 61, 200])

    on_time_2 = on_time_3 = on_time

    def on_healthy(self) -> None:
        self.healthy()

    on_healthy_2 = on_healthy_3 = on_healthy

    def on_pod(self) -> None:
        refs = [ref for ref in self.pods_named() if ref.name != LAUNCHER]
        if not refs:
            return
        ref = self.random.choice(refs)
        self.log[-1] += f" {ref.name}"
        self.befall(ref, FATES[self.random.randint(0, 8)])

    on_pod_2 = on_pod

    def on_launcher(self) -> None:
        ref = ObjectRef(PODS, "default", LAUNCHER)
        if ref not in self.children or self.random.random() < 0.5:
            return
        self.befall(ref, LAUNCHER_FATES[self.random.randint(0, 12)])

    def _more(self) -> dict[str, Any]:
        """Of the spec of another scaler."""
        self.made += 1
        more: dict[str, Any] = {"script": "/x.sh"} if self.random.random() < 0.3 else {}
        return more | {"timeout": self.random.choice([1, 60, 60, 300])}

    def on_scale_out(self) -> None:
        more, count = self._more(), self.random.choice([1, 1, 2, 3, 1000])
        self.scale_out(count, f"s{self.made}", age=-int(self.now), **more)

    on_scale_out_2 = on_scale_out

    def on_scale_in(self) -> None:
        more, count = self._more(), self.random.choice([1, 1, 2, 3, 1000])
        names: list[str] = []
        if self.random.random() < 0.5:
            target = self.status.get("targetWorkers") or []
            known = [*target, "foreign", worker(77)]
            names = self.random.sample(known, self.random.randint(1, 2))
            if target and self.random.random() < 0.7:
                names = [self.random.choice(target)]
        self.scale_in(*names, count=count, name=f"s{self.made}", age=-int(self.now), **more)

    on_scale_in_2 = on_scale_in

    def on_scaler_deleted(self) -> None:
        if self.scalers:
            del self.scalers[self.random.choice(list(self.scalers))]

    def on_scaler_edited(self) -> None:
        if not self.scalers:
            return
        ref = self.random.choice(list(self.scalers))
        scaler = self.scalers[ref]
        edits: list[dict[str, Any]] = [
            {},
            {"timeout": 5},
            {"toAdd": {"count": -1}},
            {"toDelete": {"count": 0}},
            {"toAdd": {"count": 2}, "toDelete": {"count": 1}},
            {"script": "a\nb"},
            {"toDelete": {"podNames": [worker(0)]}},
        ]
        spec = self.random.choice(edits)
        self.scalers[ref] = {**scaler, "spec": {**scaler["spec"], **spec}}

    def _edit_worker(self, **fields: int) -> None:
        self.change(merged(self.object["spec"], {"etReplicaSpecs": {"worker": fields}}))

    def on_replicas(self) -> None:
        self._edit_worker(replicas=self.random.randint(1, 8))

    def on_limits(self) -> None:
        low, high = sorted(self.random.randint(1, 8) for _ in range(2))
        self.has_new_limits = True
        self._edit_worker(minReplicas=low, maxReplicas=high)

    def on_suspend(self) -> None:
        mark = self.random.choice(["true", "false"])
        key = "job-supervisor.kube-ai.io/job-suspended"
        self.object = merged(self.object, {"metadata": {"annotations": {key: mark}}})

    def on_child(self) -> None:
        refs = [ref for ref in self.children if ref.type != PODS]
        if not refs:
            return
        ref = self.random.choice(refs)
        self.log[-1] += f" {ref.type.kind}/{ref.name}"
        if self.random.random() < 0.6:
            del self.children[ref]
            return
        child = dict(self.children[ref])
        for key in ("data", "rules", "subjects", "spec"):
            if key in child:
                child[key] = {} if isinstance(child[key], dict) else []
        self.children[ref] = child
        self.look()

    def on_garbage(self) -> None:
        if not self.scalers or self.random.random() < 0.5:
            return
        ref = self.random.choice(list(self.scalers))
        pick = self.random.choice
        names = pick(
            [
                [],
                [worker(0)],
                [worker(5), worker(6)],
                ["foreign"],
                5,
                [worker(9999)],
                [worker(99999), worker(3)],
                [None],
            ]
        )
        state = {
            "phase": pick(["Scaling", "ScriptExecuted", "Created", "", "x", 5, "ScaleFailed"]),
            "addPods": names,
            "toDeletePods": names,
            "startTime": pick([None, "x", "2999-01-01T00:00:00Z", rfc3339(self.clock)]),
            "conditions": pick([None, [], 5, [5], [{"type": "ScriptExecuted"}]]),
        }
        if self.random.random() < 0.3:
            del state["conditions"]
        self.log[-1] += f" {ref.name} {state}"
        self.spoiled.add(ref)
        self.scalers[ref] = merged(self.scalers[ref], {"status": state})

    def on_results(self) -> None:
        self.end(exit_code=self.random.choice([0, 1, 124]))

    def on_crash(self) -> None:
        self.crash()

    def on_intruder(self) -> None:
        """A pod whose owner reference is forged."""
        names = [worker(self.random.randint(0, 12)), f"{JOB}-worker-x", worker(99999)]
        ref = ObjectRef(PODS, "default", self.random.choice(names))
        if ref in self.children or ref.name[-1] == "x":
            return
        self.made += 1
        metadata = {"name": ref.name, "namespace": "default", "uid": f"intruder-{self.made}"}
        self.children[ref] = {
            "metadata": {**metadata, "creationTimestamp": rfc3339(self.clock)},
            "spec": {"containers": [{"name": "x"}]},
            "status": {"phase": "Running"},
        }
