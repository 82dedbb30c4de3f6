"""Any edits of an elastic TrainingJob that runs: it follows them and never freezes."""

import random
from collections import Counter
from typing import Any, Final

from hypothesis import example, given, settings
from hypothesis import strategies as st

from edgeai.api.pod_state import is_active
from edgeai.api.specs import InvalidSpec
from globalmanager.contract import Plan, Severity
from globalmanager.kinds.elastic.trainingjob.spec import read
from tests.globalmanager.kinds.elastic.room import ElasticCluster, elastic
from tests.globalmanager.kinds.elastic.world import LAUNCHER
from tests.support.world import copied

SUSPENDED: Final = "job-supervisor.kube-ai.io/job-suspended"


class Edited(ElasticCluster):
    """A job that its user edits at random. Commands in pods end at once.

    Args: random_: decides which edits come
    """

    def __init__(self, random_: random.Random) -> None:
        super().__init__(elastic(low=random_.randint(1, 3), high=random_.randint(3, 6)), room=5)
        self.random = random_
        self.before_edit = 0

    # ---- edits ----

    def edit(self, **fields: Any) -> None:
        """None removes a field of etReplicaSpecs.worker."""
        spec = copied(self.object["spec"])
        form = {**spec["etReplicaSpecs"]["worker"], **fields}
        given = {key: value for key, value in form.items() if value is not None}
        spec["etReplicaSpecs"]["worker"] = given
        self.change(spec)
        self.before_edit = len(self.events)

    def happen(self) -> None:
        pick, number = self.random.choice, self.random.randint(1, 7)
        match pick(["min", "max", "scale", "scale", "never", "elastic", "suspend", "room", "lost"]):
            case "min":
                self.edit(minReplicas=pick([number, number, None]))
            case "max":
                self.edit(maxReplicas=pick([number, number, None]))
            case "scale":
                self.edit(replicas=number)
            case "never":
                self.edit(restartPolicy=pick(["Never", None, None]))
            case "elastic":
                spec = copied(self.object["spec"])
                form = pick([None, {}, {"maxQueued": 2}, {"maxQueued": 0}])
                kept = {key: value for key, value in spec.items() if key != "elastic"}
                self.change(kept if form is None else {**kept, "elastic": form})
                self.before_edit = len(self.events)
            case "suspend":
                mark = {SUSPENDED: pick(["true", "false", "false"])}
                self.object["metadata"]["annotations"] = mark
                self.before_edit = len(self.events)
            case "room":
                self.room = self.random.randint(1, 9)
            case "lost":
                self.lose()

    def lose(self) -> str:
        """A worker that runs is evicted. Returns: its name, or "" """
        active = [
            name
            for name in self.bound()
            if name != LAUNCHER and is_active(self.pods_of_job()[name])
        ]
        if not active:
            return ""
        name = self.random.choice(active)
        self.set(name, {"status": {"phase": "Failed", "reason": "Evicted"}})
        return name

    # ---- what must hold ----

    @property
    def form(self) -> dict[str, Any]:
        found: dict[str, Any] = self.object["spec"]["etReplicaSpecs"]["worker"]
        return found

    @property
    def keeps_its_size(self) -> bool:
        """Whether the limits of the elastic job are wrong, and each worker is replaced."""
        try:
            spec = read(self.object)
        except InvalidSpec:
            return False
        is_replaced = self.form.get("restartPolicy") != "Never"
        return spec.limits_fault is not None and spec.max_queued is not None and is_replaced

    def planned(self) -> Plan:
        before = list(self.status.get("targetWorkers", []))
        running = {name for name in before if name in self.bound()}
        made = super().planned()
        self.end(exit_code=0)
        after = self.status.get("targetWorkers", [])
        if self.keeps_its_size and before:
            assert len(after) == len(before)
        gone = {name for name in running if name not in after}
        gone = {name for name in gone if is_active(self.pods_of_job().get(name, {"status": {}}))}
        if gone:
            told = [self.state(ref.name) for ref in self.scalers]
            named = [{*one.get("toDeletePods", ()), *one.get("addPods", ())} for one in told]
            named.append(self.taken_back(made))
            assert any(gone <= names for names in named), f"{gone} lost their place"
            low, high = self.form.get("minReplicas", 1), self.form.get("maxReplicas", 10**6)
            assert len(after) >= low or low > high, f"{after} are too few"
        return made

    def taken_back(self, made: Plan) -> set[str]:
        """The worker that gives its room to the launcher in this plan."""
        names = {
            event.message.removeprefix("worker ").split()[0]
            for event in made.events
            if event.reason == "WorkerTakenBack"
        }
        assert not names or (len(names) == 1 and LAUNCHER not in self.bound())
        return names

    def check_told_once(self) -> None:
        told = Counter(
            (event.about, event.reason, event.message)
            for event in self.events[self.before_edit :]
            if event.severity is Severity.WARNING
        )
        assert not [one for one, number in told.items() if number > 1], told


@example(seed=420)
@example(seed=2284)
@example(seed=31200)
@example(seed=248449)
@settings(max_examples=8)
@given(seed=st.integers(0, 2**32))
def test_a_job_follows_any_edits_and_ends_with_its_launcher(seed: int) -> None:
    job = Edited(random.Random(seed))
    job.rest()
    for _ in range(12):
        job.happen()
        job.rest()
        job.check_told_once()
        made = job.plan(job.clock)
        assert (made.actions, made.status, made.events) == ((), None, ())
    job.object["metadata"]["annotations"] = {}
    job.room = 30
    job.edit(restartPolicy=None)
    job.rest()
    name = job.lose()
    job.rest()
    is_readable = job.object["spec"].get("elastic") != {"maxQueued": 0}
    if is_readable:
        assert name not in job.hosts()
        assert len(job.hosts()) == len(job.status["targetWorkers"])
        assert job.status["phase"] == "Running"
    if LAUNCHER in job.pods_of_job():
        job.pods_become("Succeeded", LAUNCHER)
        job.rest()
        assert job.status["phase"] == "Succeeded"
        assert job.bound() == []
