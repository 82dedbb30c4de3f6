"""A fleet that loads its Model hot: what its status says, and which version each node gets."""

from typing import Any

import pytest

from common.wire import WorkerStatus
from edgeai.api import slices
from edgeai.api.resources import CONFIG_MAPS, Object, ObjectRef
from edgeai.ids import NodeName
from edgeai.times import rfc3339
from globalmanager.contract import Assignment
from globalmanager.kinds.edge.jointinferenceservice.rollout import SLOW_S
from globalmanager.kinds.edge.model import KIND as MODEL
from tests.globalmanager.kinds.edge.jointinferenceservice.test_fleet import (
    CAMERA,
    fleet,
    fleet_spec,
    seen,
    serving,
)
from tests.globalmanager.kinds.edge.samples import joint_inference_spec
from tests.support.world import NOW, World, at, job, merged, patch_of, report

NODES = ("edge0", "edge1", "edge2")
URL = "https://example.org/v{}.onnx"


class HotFleet:
    """The service and its Model, which see of each other what the engine would tell them."""

    def __init__(self, **rollout: Any) -> None:
        self.rollout = {"waves": ["1"], "promote": "manual", **rollout}
        self.model = World(MODEL, job("small", self.content(1), uid="model-small"))
        self.service = serving(fleet(*NODES, model={"name": "small", "hotUpdate": True}))
        self.away: set[str] = set()
        self.worker_status: WorkerStatus = "running"  # of the next reports
        self.second = 0.0
        self.edit()
        for node in NODES:
            self.service.contact(node)
        self._show_model()
        serving(self.service)
        self.settle()

    def content(self, number: int) -> dict[str, Any]:
        return {"url": URL.format(number), "sha256": f"{number:064x}"}

    def edit(self, **rollout: Any) -> "HotFleet":
        self.rollout |= rollout
        spec = fleet_spec(model={"name": "small", "hotUpdate": True})
        self.service.change({**spec, "rollout": self.rollout})
        return self

    def publish(self, number: int) -> "HotFleet":
        self.model.change(self.content(number))
        return self.settle()

    def settle(self) -> "HotFleet":
        for _ in range(8):
            self._show_model()
            seen(self.service).settle(at(self.second))
            self.model.readers = {
                node: content
                for node, one in self.service.kind.assignments(self.service.observed()).items()
                for content in one.inputs.values()
            }
            self.model.settle(at(self.second))
            for node, one in self.assignments().items():
                if node not in self.away:
                    self.report(node, {"modelVersion": str(one.version)})
            self.second += 10
        return self

    def _show_model(self) -> None:
        self.service.model("small")
        ref = next(ref for ref in self.service._others if ref.name == "small")
        self.service._others[ref] = self.model.object

    def report(self, node: str, details: dict[str, str], **counts: int) -> None:
        worker, status = f"digits-node-{node}", self.worker_status
        one = report(worker=worker, node=node, status=status, details=details, counts=counts)
        ref = ObjectRef(CONFIG_MAPS, "default", slices.slice_name("digits", one.worker))
        part = slices.part_of(self.service.children[ref])
        patch = patch_of(self.service.kind.fold(part), one)
        if patch:
            data = slices.data_of(merged(part, patch), patch["workers"])
            child = merged(self.service.children[ref], {"data": data})
            self.service.children[ref] = child

    def assignments(self) -> dict[str, Assignment]:
        return {str(n): one for n, one in MODEL.assignments(self.model.observed()).items()}

    def urls(self) -> list[str]:
        return sorted(one.body.spec["url"] for one in self.assignments().values())

    def condition(self) -> tuple[str, str]:
        condition = self.service.condition("RolledOut")
        return condition["status"], condition["reason"]

    def state(self) -> dict[str, Any]:
        return dict(self.service.status["rollout"])


URL_ONLY = {"generation": 1, "url": "u"}
LABELS = [
    {"version": URL_ONLY, "previous": URL_ONLY, "phase": "Progressing", "labels": [wave]}
    for wave in ("a=b,c", "10%", "")
]
"""States that name no labels."""


def urls(*numbers: int) -> list[str]:
    return [URL.format(number) for number in numbers]


def test_the_first_version_goes_to_all_nodes() -> None:
    hot = HotFleet()
    assert hot.urls() == urls(1, 1, 1)
    assert hot.condition() == ("True", "Complete")
    assert hot.service.status["fleet"]["versions"] == [{"version": 1, "nodes": 3}]
    assert hot.service.plan(at(hot.second)).status is None


def test_a_wave_gets_the_new_version_and_the_others_keep_theirs() -> None:
    hot = HotFleet().publish(2)
    assert hot.urls() == urls(1, 1, 2)
    assert hot.condition() == ("Unknown", "Progressing")
    message = hot.service.condition("RolledOut")["message"]
    wave = "wave 1 of 2: 1 of 1 nodes serve version 2"
    assert message == f"{wave}; waits for spec.rollout.promoted"
    assert [one["generation"] for one in hot.model.status["versions"]] == [1, 2]
    hot.edit(promoted={"version": 2, "wave": 9}).settle()
    assert hot.urls() == urls(2, 2, 2)
    assert [one["outcome"] for one in hot.model.status["versions"]] == ["Complete", "Complete"]


@pytest.mark.parametrize(("generation", "reason"), [("2", "RolledBack"), ("1", "Progressing")])
def test_what_the_node_says_of_the_content_decides_after_a_while(
    generation: str, reason: str
) -> None:
    hot = HotFleet()
    hot.away = set(NODES)
    hot.publish(2)
    (canary,) = [node for node, one in hot.assignments().items() if one.version == 2]
    details = {"generation": generation, "problem": "NoSpace"}
    problem = report(worker=f"small-{canary}", node=canary, status="lost", details=details)
    hot.model.receive(problem)
    hot.second += SLOW_S
    hot.settle()
    assert hot.condition()[1] == reason
    assert (canary in hot.service.condition("RolledOut")["message"]) or reason == "RolledBack"


@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize("field", ["rejected", "promoted"])
def test_a_field_that_names_another_version_says_so(field: str, number: int) -> None:
    value = number if field == "rejected" else {"version": number, "wave": 9}
    hot = HotFleet().publish(2).edit(**{field: value}).settle()
    assert hot.condition() == ("Unknown", "Progressing")
    text = f"; spec.rollout.{field} names version {number}, which has no effect on version 2"
    assert hot.service.condition("RolledOut")["message"].endswith(text)


def test_the_versions_that_a_spec_names_of_former_rollouts_are_not_told() -> None:
    hot = HotFleet(promote="auto").publish(2).edit(promoted={"version": 2, "wave": 9}).settle()
    hot.publish(3).edit(rejected=3).settle()
    assert "spec.rollout.promoted" not in hot.service.condition("RolledOut")["message"]
    hot.edit(rejected=9).settle()
    assert "spec.rollout.rejected names version 9" in hot.service.condition("RolledOut")["message"]


def test_a_wave_by_label_gets_the_nodes_with_the_label() -> None:
    hot = HotFleet(waves=["hall=north"])
    hot.service.nodes("edge1", labels={**CAMERA, "hall": "north"})
    hot.publish(2)
    assert {n for n, one in hot.assignments().items() if one.version == 2} == {"edge1"}
    assert hot.service.condition("RolledOut")["message"].startswith("wave 1 of 2: 1 of 1 nodes")


def test_a_version_is_decided_before_its_effect() -> None:
    """What is not in the status yet reaches no node."""
    hot = HotFleet()
    hot.model.change(hot.content(2))
    assert hot.urls() == urls(1, 1, 1)
    hot._show_model()
    plan = hot.service.plan(at(hot.second))
    assert plan.status is not None
    assert plan.status["rollout"]["version"]["generation"] == 2
    assignments = hot.service.kind.assignments(hot.service.observed()).values()
    contents = {one.generation for each in assignments for one in each.inputs.values() if one}
    assert contents == {1}


def test_a_rollback_is_a_later_assignment_of_former_content() -> None:
    hot = HotFleet().publish(2)
    before = {node: one.version for node, one in hot.assignments().items()}
    hot.edit(rejected=2).settle()
    assert hot.urls() == urls(1, 1, 1)
    assert hot.condition() == ("False", "RolledBack")
    assert all(one.version > before[node] for node, one in hot.assignments().items())
    assert hot.model.status["versions"][-1]["outcome"] == "RolledBack"
    # Who reads the Model without a rollout gets what it names, by a later assignment, too.
    latest = max(one.version for one in hot.assignments().values())
    hot.model.readers = {NodeName("edge0"): None}
    assert hot.assignments()["edge0"].version > latest
    assert hot.assignments()["edge0"].body.spec["url"] == URL.format(2)


def test_reports_of_a_node_are_about_the_generation_of_the_model_and_not_of_its_content() -> None:
    hot = HotFleet().publish(2)
    assert {one.generation for one in hot.assignments().values()} == {2}
    assert sorted(one.version for one in hot.assignments().values()) == [1, 1, 2]


def test_the_model_is_delivered_when_each_node_has_the_content_that_it_should_have() -> None:
    hot = HotFleet().publish(2)
    for node, one in hot.assignments().items():
        details = {"generation": str(one.version), "digest": one.body.spec["sha256"]}
        hot.model.receive(report(worker=f"small-{node}", node=node, details=details))
    hot.model.settle()
    assert hot.model.condition("Delivered")["status"] == "True"
    assert hot.model.status["readyNodes"] == 3


def test_a_fault_of_the_version_takes_it_back_and_the_event_has_the_figures() -> None:
    hot = HotFleet()
    hot.away = set(NODES)
    hot.publish(2)
    (canary,) = (n for n, one in hot.assignments().items() if one.body.spec["url"] != URL.format(1))
    fault = "version 2: ValueError: no weights"
    hot.report(canary, {"modelVersion": "1", "modelFault": fault})
    plan = hot.service.plan(at(hot.second))
    (event,) = (one for one in plan.events if one.reason == "RolledBack")
    assert f"on 1 of the 1 nodes that should serve it: {canary}" in event.message
    assert hot.settle().urls() == urls(1, 1, 1)


def test_a_guard_reads_the_counts_of_the_version_alone() -> None:
    guard = {"metric": "hard", "operator": "<", "threshold": 0.5, "minSamples": 10}
    hot = HotFleet(guard=guard)
    hot.away = set(NODES)
    hot.publish(2)
    (canary,) = (n for n, one in hot.assignments().items() if one.version == 2)
    counts = {"seen": 5000, "hard": 4000, "version": 1, "seenOfVersion": 99, "hardOfVersion": 99}
    hot.report(canary, {"modelVersion": "2"}, **counts)
    assert hot.settle().condition()[1] == "Progressing"
    counts |= {"version": 2, "seenOfVersion": 20, "hardOfVersion": 15}
    hot.report(canary, {"modelVersion": "2"}, **counts)
    assert hot.settle().condition()[1] == "RolledBack"
    assert "hard is 0.75 of 20 samples" in hot.state()["message"]


@pytest.mark.parametrize("value", ["nan", "inf", "-5", "1e300", "9", 10**17])
def test_counts_that_nobody_can_have_counted_are_no_samples(value: Any) -> None:
    """Whoever may write the slice may write anything."""
    guard = {"metric": "hard", "operator": "<", "threshold": 0.5, "minSamples": 10}
    hot = HotFleet(guard=guard).publish(2)
    (canary,) = (n for n, one in hot.assignments().items() if one.version == 2)
    counts = {"version": 2, "seenOfVersion": 8, "hardOfVersion": 7}
    hot.report(canary, {"modelVersion": "2"}, **counts)
    for child in hot.service.children.values():
        for key, text in child.get("data", {}).items():
            is_meant = isinstance(text, str) and '"hardOfVersion":7' in text
            if is_meant:
                child["data"][key] = text.replace(":7", f':"{value}"')
    hot.service.settle(at(hot.second))
    assert hot.condition()[1] == "Progressing"


@pytest.mark.parametrize(
    ("details", "serves"),
    [
        ({"modelVersion": "9", "modelDigest": f"{2:064x}"}, 1),
        ({"modelVersion": "2", "modelDigest": f"{7:064x}"}, 0),
    ],
)
def test_content_counts_by_its_digest_where_services_number_it_differently(
    details: dict[str, str], serves: int
) -> None:
    hot = HotFleet()
    hot.away = set(NODES)
    hot.publish(2)
    (canary,) = (n for n, one in hot.assignments().items() if one.version == 2)
    hot.report(canary, details)
    hot.settle()
    assert f": {serves} of 1 nodes serve" in hot.service.condition("RolledOut")["message"]


@pytest.mark.parametrize("sha256", ["", f"{7:064x}"])
def test_a_rollout_of_a_model_without_a_digest_warns(sha256: str) -> None:
    hot = HotFleet()
    hot.model.change({"url": URL.format(7), "sha256": sha256})
    message = hot.settle().service.condition("Accepted")["message"]
    assert ("without spec.sha256 of the Model" in message) == (not sha256)


def test_a_wrong_edit_of_the_model_leaves_the_way_to_the_content_of_nodes() -> None:
    hot = HotFleet()
    url = "http://store.default.svc/v{}.onnx"
    hot.model.change({"url": url.format(2), "sha256": f"{2:064x}"})
    hot.settle().edit(promoted={"version": 2, "wave": 9}).settle()
    hot.model.change({"url": 7})
    targets = [[one.service for one in each.targets] for each in hot.assignments().values()]
    assert targets == [["store"]] * 3


def test_a_version_of_a_model_made_again_is_complete_when_all_nodes_get_it() -> None:
    hot = HotFleet()
    hot.model = World(MODEL, job("small", hot.content(2), uid="model-of-today"))
    hot.settle()
    assert [one["outcome"] for one in hot.model.status["versions"]] == [""]
    hot.edit(promoted={"version": 2, "wave": 9}).settle()
    assert [one["outcome"] for one in hot.model.status["versions"]] == ["Complete"]


def crash_loop(since: str) -> dict[str, Any]:
    waiting = {"name": "worker", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    ready = {"type": "Ready", "status": "False", "reason": "x", "lastTransitionTime": since}
    return {"containerStatuses": [waiting], "conditions": [ready]}


@pytest.mark.parametrize(("after_s", "reason"), [(59, "Progressing"), (60, "RolledBack")])
def test_a_worker_that_ends_again_and_again_is_a_failure_after_a_while(
    after_s: float, reason: str
) -> None:
    hot = HotFleet().publish(2)
    (canary,) = (n for n, one in hot.assignments().items() if one.version == 2)
    hot.service.pods_become("Running", f"digits-node-{canary}", **crash_loop(rfc3339(NOW)))
    seen(hot.service).step(at(after_s))
    assert hot.condition()[1] == reason


def test_a_worker_whose_crash_loop_starts_it_again_and_again_is_a_failure() -> None:
    hot = HotFleet(pauseS=100_000).publish(2)
    (canary,) = (n for n, one in hot.assignments().items() if one.version == 2)
    pod, second = f"digits-node-{canary}", hot.second
    runs = {"name": "worker", "state": {"running": {}}}
    for back_off_s in (10, 20, 40, 80):
        hot.service.pods_become("Running", pod, **crash_loop(rfc3339(at(second))))
        seen(hot.service).step(at(second))
        due_s = hot.service.plan(at(second)).requeue_after_s
        assert hot.condition()[1] == "Progressing"
        if due_s is not None and due_s < back_off_s:  # the engine plans again
            seen(hot.service).step(at(second + due_s))
        second += back_off_s
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": rfc3339(at(second))}
        hot.service.pods_become("Running", pod, containerStatuses=[runs], conditions=[ready])
        seen(hot.service).step(at(second))
        second += 5
    assert hot.condition()[1] == "RolledBack"


@pytest.mark.parametrize("status", ["lost", "failed"])
def test_a_worker_that_its_node_does_not_hear_does_not_serve(status: WorkerStatus) -> None:
    hot = HotFleet(promote="auto", waves=["1"], pauseS=60)
    hot.away = set(NODES)
    hot.publish(2)
    hot.worker_status = status
    for _ in range(10):
        for node, one in hot.assignments().items():
            if one.version == 2:
                hot.report(node, {"modelVersion": "2"})
        hot.settle()
    assert hot.urls() == urls(1, 1, 2)
    assert hot.service.status["fleet"]["versions"] == [{"version": 1, "nodes": 2}]


def test_a_service_that_is_no_fleet_any_more_has_no_rollout() -> None:
    hot = HotFleet().publish(2)
    edge = {"nodeName": "edge0", "model": {"name": "small", "hotUpdate": True}}
    hot.service.change(joint_inference_spec(edge=edge))
    hot.away = set(NODES)
    assert hot.settle().urls() == urls(2)
    assert "rollout" not in hot.service.status
    assert hot.publish(3).urls() == urls(3)


def test_removing_the_rollout_lets_every_node_have_the_newest() -> None:
    hot = HotFleet().publish(2).edit(rejected=2).settle()
    spec = fleet_spec(model={"name": "small", "hotUpdate": True})
    hot.service.change(spec)
    assert hot.settle().urls() == urls(2, 2, 2)
    assert hot.publish(3).urls() == urls(3, 3, 3)


def test_a_model_that_is_made_again_goes_out_in_waves_too() -> None:
    hot = HotFleet()
    hot.model = World(MODEL, job("small", hot.content(2), uid="model-of-today"))
    assert hot.settle().urls() == urls(1, 1, 2)


def test_a_promotion_is_none_of_a_version_of_the_model_made_again() -> None:
    hot = HotFleet(promoted={"version": 2, "wave": 9}).publish(2)
    assert hot.urls() == urls(2, 2, 2)
    hot.model = World(MODEL, job("small", hot.content(7), uid="model-of-today"))
    assert hot.settle().urls() == urls(2, 2, 7)
    assert hot.publish(8).urls() == urls(2, 2, 8)


def test_without_a_version_before_a_rejected_one_stays_and_the_condition_says_so() -> None:
    hot = HotFleet(rejected=1).settle()
    assert hot.condition() == ("False", "VersionFailed")
    assert hot.service.condition("RolledOut")["message"].endswith("publish another one")


def test_a_replica_that_has_missed_the_first_decision_gives_no_later_number() -> None:
    """Its cache of the Model is newer than that of the service."""
    hot = HotFleet().publish(2).edit(rejected=2).settle()
    before = {node: one.version for node, one in hot.assignments().items()}
    del hot.service.object["status"]["rollout"]
    late = hot.service.kind.assignments(hot.service.observed())
    hot.model.readers = {n: content for n, one in late.items() for content in one.inputs.values()}
    assert all(one.version < before[node] for node, one in hot.assignments().items())


def test_a_service_without_a_rollout_gets_what_the_model_names_by_its_number() -> None:
    hot = HotFleet().publish(2).edit(rejected=2).settle()
    del hot.service.object["status"]["rollout"]
    hot.service.change(fleet_spec(model={"name": "small", "hotUpdate": True}))
    assignments = hot.service.kind.assignments(hot.service.observed()).values()
    assert {content for one in assignments for content in one.inputs.values()} == {None}


def test_a_wrong_edit_of_the_service_changes_no_content() -> None:
    hot = HotFleet().publish(2)
    hot.service.change({"edgeWorker": 1})
    assert hot.settle().urls() == urls(1, 1, 2)


@pytest.mark.parametrize("garbage", [7, {"phase": "x"}, {"version": {}}, [], *LABELS])
def test_a_state_that_somebody_else_wrote_is_replaced(garbage: Any) -> None:
    hot = HotFleet()
    hot.service.object["status"]["rollout"] = garbage
    assert hot.settle().state()["phase"] == "Complete"


@pytest.mark.parametrize(
    ("edge", "model"), [({"perNode": False}, True), ({"perNode": True}, False)]
)
def test_a_rollout_is_for_a_fleet_that_loads_its_model_hot(
    edge: dict[str, Any], model: bool
) -> None:
    spec = fleet_spec(model={"name": "small", "hotUpdate": model}, **edge)
    if not edge["perNode"]:
        del spec["edgeWorker"]["nodeSelector"]
    world = fleet(*NODES)
    world.change({**spec, "rollout": {"waves": ["1"]}}).settle()
    assert "spec.rollout: is for a fleet" in world.condition("Accepted")["message"]


# ---- condition Running of a fleet with a hot model ----------------------------------------------


def running(*reports: tuple[str, dict[str, str]]) -> Object:
    hot = HotFleet()
    hot.away = set(NODES)
    for node, details in reports:
        hot.report(node, details)
    hot.service.settle(at(1000))
    return hot.service.condition("Running")


def test_a_fleet_without_any_model_is_not_running() -> None:
    fault = {"modelFault": "waiting: the node has no content yet"}
    condition = running(*((node, fault) for node in NODES))
    assert (condition["status"], condition["reason"]) == ("False", "ModelNotLoaded")
    assert "3 of 3 workers have no model; edge0 (and 2 more): waiting" in condition["message"]


def test_a_fleet_says_which_worker_cannot_load_the_newest_version() -> None:
    condition = running(("edge1", {"modelVersion": "1", "modelFault": "version 2: broken"}))
    assert condition["status"] == "True"
    assert condition["message"].endswith("; but edge1: version 2: broken")
