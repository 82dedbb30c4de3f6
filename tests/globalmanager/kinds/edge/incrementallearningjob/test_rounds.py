"""IncrementalLearningJob: when rounds begin, what they do, and how they end."""

import copy
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from common.wire import WorkerStatus
from edgeai.times import rfc3339
from globalmanager.engine.changes import only_counts_differ
from globalmanager.kinds.edge.incrementallearningjob.rounds import (
    DEPLOYED_WITHIN_S,
    MAX_ATTEMPTS,
    NO_REPORT_S,
    STARTED_WITHIN_S,
)
from globalmanager.kinds.edge.incrementallearningjob.workers import UPDATED_S
from tests.globalmanager.kinds.edge.incrementallearningjob.learning import (
    condition,
    directory,
    evaluate,
    fails,
    pods,
    roll_out,
    tell,
    train,
)
from tests.globalmanager.kinds.edge.samples import (
    counted,
    incremental_job,
    incremental_learning_spec,
    value_of,
)
from tests.support.world import NOW, World, at, report


def env(object_: Any) -> dict[str, str]:
    spec = object_["spec"].get("template", object_)["spec"]
    return {item["name"]: value_of(item) for item in spec["containers"][0]["env"]}


def ranges(world: World, pod: str) -> Any:
    inits = {each["name"]: each for each in world.child("Pod", pod)["spec"]["initContainers"]}
    return json.loads(inits["edgeai-samples"]["args"][2])


def deployed_env(world: World) -> dict[str, str]:
    return env(world.child("Deployment", "helmet-inference"))


def hot_world() -> World:
    """A job whose inference worker runs, and loads new models while it does."""
    deploy = incremental_learning_spec()["deploySpec"]
    model = {"name": "deployed", "hotUpdateEnabled": True}
    return roll_out(incremental_job(deploySpec={**deploy, "model": model}).settle())


def whole_round(world: World, new: float = 0.9) -> World:
    evaluate(train(world.settle()), new)
    return roll_out(world).settle()


def test_a_round_trains_evaluates_and_deploys() -> None:
    world = incremental_job().settle()
    assert pods(world) == ["helmet-train-1-0"]
    assert ranges(world, "helmet-train-1-0") == [[0, 8]]
    variables = env(world.child("Pod", "helmet-train-1-0"))
    assert variables["MODEL_URL"] == "/home/data/output/helmet-uid-1/1-0/model"
    assert variables["TRAIN_DATASET_URL"] == "/edgeai-round/samples.txt"
    assert variables["BASE_MODEL_URL"] == "/edgeai-round/base/base"
    assert variables["ORIGINAL_DATASET_URL"] == "/home/data/data/train.txt"
    train(world)
    assert pods(world) == ["helmet-eval-1-0", "helmet-train-1-0"]
    assert ranges(world, "helmet-eval-1-0") == [[8, 10]]
    variables = env(world.child("Pod", "helmet-eval-1-0"))
    new, former = variables["MODEL_URLS"].split(";")
    assert new == "/home/data/output/helmet-uid-1/1-0/model/m.pb"
    assert former == "/home/data/models/deployed/m.pb"
    assert deployed_env(world)["MODEL_URL"] == former
    evaluate(world)
    assert world.status["phase"] == "Deploying"
    assert deployed_env(world)["MODEL_URL"] == new
    roll_out(world).settle()
    assert world.status["last"]["reason"] == "Deployed"
    assert "current" not in world.status
    assert (world.status["phase"], condition(world)["reason"]) == ("Watching", "Watching")


def test_a_second_round_works_on_the_new_samples_and_the_last_models() -> None:
    world = whole_round(incremental_job())
    counted(world, data=14)
    assert world.settle().status["round"] == 1, "3 of 4 new samples are for training"
    counted(world, data=20).settle()
    assert pods(world) == ["helmet-train-2-0"]
    assert ranges(world, "helmet-train-2-0") == [[10, 18]]
    train(world)
    assert ranges(world, "helmet-eval-2-0") == [[8, 10], [18, 20]]
    former = env(world.child("Pod", "helmet-eval-2-0"))["MODEL_URLS"].split(";")[1]
    assert former == "/home/data/output/helmet-uid-1/1-0/model/m.pb"
    evaluate(world)
    roll_out(world).settle()
    assert world.status["deployed"]["round"] == 2
    assert deployed_env(world)["MODEL_URL"] == "/home/data/output/helmet-uid-1/2-0/model/m.pb"


@pytest.mark.parametrize("steps", range(5))
def test_a_round_that_is_killed_at_any_step_ends_as_one_that_is_not(steps: int) -> None:
    """The GlobalManager dies after so many actions of each of its plans, and before the status."""

    def settle(world: World) -> World:
        for _ in range(60):
            plan = world.plan(NOW)
            if not plan.actions and plan.status is None:
                return world
            world.apply(plan, actions=steps)
            world.apply(world.plan(NOW))
        raise AssertionError("does not settle")

    def life(world: World, settled: Any) -> dict[str, Any]:
        settled(world)
        for new in (0.9, 0.91, 0.95):
            tell(world, "train", f"{directory(world)}/m.pb")
            settled(world)
            url = f"{directory(world)}/m.pb"
            numbers = {"metrics_precision": new, "metrics_1_precision": 0.5}
            tell(world, "eval", url, "/x", **numbers)
            settled(roll_out(settled(world)))
            counted(world, data=world.status["progress"]["trained"] + 10)
            settled(world)
        status = {key: value for key, value in world.status.items() if key != "workers"}
        return {"status": status, "names": world.names()}

    assert life(incremental_job(), settle) == life(incremental_job(), lambda w: w.settle())


def test_a_model_that_is_not_better_is_not_deployed() -> None:
    world = whole_round(incremental_job(), new=0.55)
    assert world.status["last"]["reason"] == "NotDeployed"
    assert "precision_delta is 0.05" in world.status["last"]["message"]
    assert "deployed" not in world.status
    assert deployed_env(world)["MODEL_URL"] == "/home/data/models/deployed/m.pb"
    counted(world, data=20).settle()
    base = world.child("Pod", "helmet-train-2-0")["spec"]["initContainers"][0]["args"][4]
    assert base == "/home/data/output/helmet-uid-1/1-0/model/m.pb", "its samples are in it"


@pytest.mark.parametrize("numbers", [{}, {"metrics_precision": 0.9}, {"metrics_other": 1.0}])
def test_a_metric_that_is_missing_ends_the_round_with_a_reason(numbers: dict[str, float]) -> None:
    world = train(incremental_job().settle())
    tell(world, "eval", f"{directory(world)}/m.pb", "/x", **numbers).settle()
    assert condition(world)["status"] == "False"
    assert condition(world)["reason"] == "MetricMissing"
    assert pods(counted(world, data=20).settle()) == ["helmet-train-2-0"]


@pytest.mark.parametrize(
    "url",
    ["/output/helmet-uid-1/7-0/model/m.pb", "/etc/passwd", "/output/helmet-uid-1/1-0/model/../x"],
)
def test_a_report_of_another_round_or_place_changes_nothing(url: str) -> None:
    world = tell(incremental_job().settle(), "train", url).settle()
    assert world.status["current"]["stage"] == "Train"


def test_a_pod_that_is_gone_after_its_success_does_not_run_again() -> None:
    world = incremental_job().settle()
    tell(world, "train", f"{directory(world)}/m.pb").gone("Pod", "helmet-train-1-0").settle()
    assert pods(world) == ["helmet-eval-1-0"]


def test_a_pod_that_is_gone_before_its_success_is_made_again() -> None:
    world = incremental_job().settle().gone("Pod", "helmet-train-1-0").settle()
    assert pods(world) == ["helmet-train-1-0"]


@pytest.mark.parametrize("connected", [True, False])
def test_a_pod_that_is_gone_after_it_was_seen_to_succeed_is_not_made_again(connected: bool) -> None:
    world = incremental_job().contact("edge0", connected=connected).settle()
    world.pods_become("Succeeded").settle(at(5)).gone("Pod", "helmet-train-1-0").settle(at(10))
    assert pods(world) == []
    assert train(world, now=at(20)).status["current"]["stage"] == "Eval"


@pytest.mark.parametrize("skew", [-500, 0, 500])
def test_the_clock_of_the_node_does_not_matter(skew: float) -> None:
    world = incremental_job().contact("edge0", since=at(-(10**5))).settle()
    ended = {"name": "main", "state": {"terminated": {"finishedAt": rfc3339(at(skew))}}}
    world.pods_become("Succeeded", containerStatuses=[ended]).settle(at(1))
    assert world.status["current"]["attempt"] == 0


def test_a_late_report_of_a_former_attempt_does_not_end_the_present_one() -> None:
    world = incremental_job().settle()
    former = directory(world)
    fails(world, "helmet-train-1-0").settle()
    tell(world.settle(at(11)), "train", f"{former}/m.pb").settle(at(12))
    assert world.status["current"]["stage"] == "Train"
    assert train(world, now=at(13)).status["current"]["stage"] == "Eval"


def test_a_pod_that_does_not_start_is_an_attempt() -> None:
    world = incremental_job().contact("edge0").settle().pods_become("Pending")
    world.settle(at(STARTED_WITHIN_S - 1))
    assert pods(world) == ["helmet-train-1-0"]
    world.settle(at(STARTED_WITHIN_S + 1)).settle(at(STARTED_WITHIN_S + 20))
    assert pods(world) == ["helmet-train-1-1"]
    world.contact("edge0", connected=False).pods_become("Pending").settle(at(10**6))
    assert world.status["current"]["attempt"] == 1, "what happens on the node is not known"


@pytest.mark.parametrize(("phase", "image"), [("Pending", "right"), ("Running", "worker")])
def test_an_edit_changes_a_pod_that_has_not_started(phase: str, image: str) -> None:
    world = incremental_job().settle().pods_become(phase).settle()
    spec = incremental_learning_spec()
    container = {"name": "main", "image": "registry.test/right:1"}
    template = {"spec": {"nodeName": "edge0", "containers": [container]}}
    world.change({**spec, "trainSpec": {**spec["trainSpec"], "template": template}}).settle()
    pod = world.child("Pod", "helmet-train-1-0")
    assert pod["spec"]["containers"][0]["image"] == f"registry.test/{image}:1"


def moved(world: World) -> World:
    """The Dataset and the workers are on edge1 now."""
    spec = json.loads(json.dumps(incremental_learning_spec()).replace("edge0", "edge1"))
    world.nodes("edge1").other("Dataset", "data")["spec"]["nodeName"] = "edge1"
    return world.change(spec)


def test_a_round_whose_node_is_gone_ends_and_begins_on_the_other_one() -> None:
    world = moved(incremental_job().settle()).without("Node", "edge0").settle()
    assert (world.status["last"]["reason"], world.status["round"]) == ("RoundOutdated", 2)
    assert pods(world) == ["helmet-train-2-0"]
    assert world.child("Pod", "helmet-train-2-0")["spec"]["nodeName"] == "edge1"
    assert ranges(world, "helmet-train-2-0") == [[0, 8]], "no sample is lost"


@pytest.mark.parametrize("edit", ["data", "initial"])
def test_an_edit_of_what_a_round_trains_on_ends_it(edit: str) -> None:
    world = incremental_job().settle()
    if edit == "data":
        world.other("Dataset", "data")["spec"]["url"] = "/data/other.txt"
        world.settle()
    else:
        world.model("fresh", "/models/fresh")
        world.change(incremental_learning_spec(initialModel={"name": "fresh"})).settle()
        assert world.status["current"]["base"] == "/models/fresh"
    assert (world.status["last"]["reason"], world.status["round"]) == ("RoundOutdated", 2)


def test_models_of_another_node_are_left_there() -> None:
    world = moved(whole_round(incremental_job()))
    counted(world, data=30).settle()
    assert "deployed" not in world.status
    assert world.status["current"]["base"] == "/models/base"
    assert deployed_env(world)["MODEL_URL"] == "/home/data/models/deployed/m.pb"


def test_a_round_waits_for_the_count_of_an_edited_dataset() -> None:
    world = whole_round(incremental_job())
    dataset = world.other("Dataset", "data")
    dataset["spec"]["url"], dataset["metadata"]["generation"] = "/data/other.txt", 2
    assert world.settle().status["round"] == 1
    assert condition(world)["reason"] == "NotCounted"
    assert counted(world, data=7).settle().status["round"] == 2
    assert ranges(world, "helmet-train-2-0") == [[0, 5]]


@pytest.mark.parametrize("metrics", [{"metrics.precision": 0.3, "metrics.1.precision": 0.6}, {}])
def test_metrics_of_a_lost_ledger_decide_nothing(metrics: dict[str, float]) -> None:
    world = whole_round(incremental_job())
    counted(world, data=20).settle()
    train(world)
    details = {"results.0.url": f"{directory(world)}/m.pb"}
    fields = {"worker": "helmet-eval", "ledger_id": "ledger-2", "status": "completed"}
    world.receive(report(**fields, counts=metrics, details=details))  # type: ignore[arg-type]
    reason = world.settle().status["last"]["reason"]
    assert reason == ("NotDeployed" if metrics else "MetricMissing")
    assert world.status["deployed"]["round"] == 1


def test_a_deployment_that_fails_is_undone() -> None:
    world = whole_round(incremental_job())
    before = deployed_env(world)["MODEL_URL"]
    counted(world, data=20).settle()
    evaluate(roll_out(train(world), updatedReplicas=0), former=0.2)
    assert deployed_env(world)["MODEL_URL"] != before
    world.settle(at(DEPLOYED_WITHIN_S + 1))
    assert world.status["last"]["reason"] == "DeployFailed"
    assert (world.status["deployed"]["round"], deployed_env(world)["MODEL_URL"]) == (1, before)


def test_a_deployment_waits_for_its_time_of_day() -> None:
    deploy = incremental_learning_spec()["deploySpec"]
    trigger = {**deploy["trigger"], "timer": {"start": "12:00", "end": "13:00"}}
    world = evaluate(train(incremental_job(deploySpec={**deploy, "trigger": trigger}).settle()))
    assert (world.status["phase"], "deployed" in world.status) == ("Deploying", False)
    assert "between 12:00 and 13:00 UTC" in condition(world)["message"]
    assert world.settle(datetime(2026, 1, 2, 12, 0, tzinfo=UTC)).status["deployed"]["round"] == 1


def test_another_model_of_the_deployment_ends_it() -> None:
    world = evaluate(train(incremental_job().settle())).model(
        "other", "/models/o/m.pb", format="pb"
    )
    deploy = incremental_learning_spec()["deploySpec"]
    world.change(incremental_learning_spec(deploySpec={**deploy, "model": {"name": "other"}}))
    roll_out(world.settle()).settle()
    assert world.status["last"]["reason"] == "RoundOutdated"
    assert "deployed" not in world.status


def test_a_model_that_cannot_be_compared_is_no_base() -> None:
    world = train(incremental_job().settle())
    tell(world, "eval", f"{directory(world)}/m.pb", "/x").settle()
    counted(world, data=20).settle()
    assert world.status["current"]["base"] == "/models/base"
    assert ranges(world, "helmet-train-2-0") == [[0, 16]]


@pytest.mark.parametrize("poll", [60, 300, 3600])
def test_a_hot_worker_has_time_for_its_look(poll: int) -> None:
    deploy = incremental_learning_spec()["deploySpec"]
    model = {"name": "deployed", "hotUpdateEnabled": True, "pollPeriodSeconds": poll}
    world = incremental_job(deploySpec={**deploy, "model": model}).settle()
    roll_out(evaluate(train(world))).settle().settle(at(2 * poll + 59))
    assert world.settle(at(2 * poll + 61)).status["last"]["reason"] == "Deployed"


def test_the_node_of_the_round_keeps_its_assignment() -> None:
    world = incremental_job().settle()
    spec = {**incremental_learning_spec(), "outputDir": "relative"}
    world.change(spec).gone("Pod", "helmet-train-1-0").settle()
    assert list(world.kind.assignments(world.observed())) == ["edge0"]


def test_the_format_of_the_samples_stays_in_a_round() -> None:
    world = incremental_job().settle()
    world.other("Dataset", "data")["spec"]["format"] = "csv"
    train(world)
    assert world.child("Pod", "helmet-eval-1-0")["spec"]["initContainers"][0]["args"][1] == ""


@pytest.mark.parametrize("name", ["a;b.pb", "a:b/m.pb", "$(HOME)/m.pb"])
def test_a_model_with_a_mark_in_its_name_is_no_result(name: str) -> None:
    world = incremental_job().settle()
    tell(world, "train", f"{directory(world)}/{name}").settle()
    assert world.status["current"]["stage"] == "Train"


def test_metrics_are_of_their_model_in_any_order() -> None:
    world = train(incremental_job().settle())
    numbers = {"metrics_precision": 0.9, "metrics_1_precision": 0.2}
    tell(world, "eval", "/models/deployed/m.pb", f"{directory(world)}/m.pb", **numbers).settle()
    assert world.status["last"]["reason"] == "NotDeployed"
    assert world.status["metrics"][0] == {"key": "precision", "value": "0.2"}


def test_a_stage_that_fails_is_tried_again_and_then_says_why() -> None:
    world = incremental_job().settle()
    seconds = 0.0
    for attempt in range(MAX_ATTEMPTS):
        assert pods(world)[-1] == f"helmet-train-1-{attempt}"
        terminated = {"exitCode": 3, "message": "no memory"}
        states = [{"name": "main", "state": {"terminated": terminated}}]
        fails(world, f"helmet-train-1-{attempt}", containerStatuses=states)
        world.settle(at(seconds))
        seconds += 30
        world.settle(at(seconds))
    assert world.status["last"]["reason"] == condition(world)["reason"] == "TrainFailed"
    assert "exit code 3: no memory, after 3 attempts" in condition(world)["message"]
    counted(world, data=14).settle(at(seconds))
    assert world.status["round"] == 1, "the trigger counts only samples that came since"
    counted(world, data=20).settle(at(seconds))
    assert ranges(world, "helmet-train-2-0") == [[0, 16]], "its samples are not lost"


def test_a_second_attempt_waits() -> None:
    world = incremental_job().settle()
    fails(world, "helmet-train-1-0").settle()
    assert pods(world) == ["helmet-train-1-0"]
    assert world.plan(at(1)).requeue_after_s == 9
    assert pods(world.settle(at(11))) == ["helmet-train-1-0", "helmet-train-1-1"]


def test_a_worker_that_succeeds_and_tells_nothing_has_failed() -> None:
    world = incremental_job().contact("edge0").settle().pods_become("Succeeded").settle()
    assert world.settle(at(NO_REPORT_S - 1)).status["current"]["attempt"] == 0
    assert world.settle(at(NO_REPORT_S + 1)).status["current"]["attempt"] == 1


def test_a_report_that_waits_on_a_node_out_of_contact_is_waited_for() -> None:
    world = incremental_job().contact("edge0", connected=False).settle().pods_become("Succeeded")
    assert world.settle(at(10**6)).status["current"]["attempt"] == 0
    world.contact("edge0", since=at(10**6)).settle(at(10**6 + 1))
    assert world.status["current"]["attempt"] == 0
    assert train(world, now=at(10**6 + 2)).status["current"]["stage"] == "Eval"


def test_a_deployment_that_never_ends_lets_the_next_round_begin() -> None:
    world = evaluate(train(incremental_job().settle()))
    counted(world, data=30).settle(at(DEPLOYED_WITHIN_S - 1))
    assert world.status["round"] == 1
    world.settle(at(DEPLOYED_WITHIN_S + 1))
    assert world.status["last"]["reason"] == "DeployFailed"
    assert world.status["round"] == 2


def test_a_dataset_that_shrinks_begins_rounds_with_what_comes_then() -> None:
    world = whole_round(incremental_job())
    counted(world, data=3).settle()
    assert world.status["progress"]["triggered"] == 3
    counted(world, data=9).settle()
    assert world.status["round"] == 1
    counted(world, data=13).settle()
    assert ranges(world, "helmet-train-2-0") == [[3, 11]]


def test_an_edit_in_a_round_counts_from_the_next_one() -> None:
    world = incremental_job().settle()
    spec = incremental_learning_spec(dataset={"name": "data", "trainProb": 0.5}, outputDir="/new")
    world.change(spec).settle()
    assert pods(world) == ["helmet-train-1-0"]
    train(world)
    assert ranges(world, "helmet-eval-1-0") == [[8, 10]]
    evaluate(world)
    counted(roll_out(world), data=30).settle()
    assert ranges(world, "helmet-train-2-0") == [[10, 20]]
    assert directory(world) == "/new/helmet-uid-1/2-0/model"


def test_a_hot_worker_keeps_its_pod_and_reads_of_the_new_model() -> None:
    deploy = incremental_learning_spec()["deploySpec"]
    model = {"name": "deployed", "hotUpdateEnabled": True, "pollPeriodSeconds": 5}
    world = incremental_job(deploySpec={**deploy, "model": model}).settle()
    before = world.child("Deployment", "helmet-inference")
    roll_out(evaluate(train(world))).settle()
    assert world.child("Deployment", "helmet-inference")["spec"] == before["spec"]
    text = world.child("ConfigMap", "helmet-model")["data"]["model.json"]
    assert json.loads(text)["model_config"] == {
        "model_path": "/home/data/output/helmet-uid-1/1-0/model/m.pb",
        "model_update_time": "1",
    }
    assert world.status["current"]["stage"] == "Deploy", "it has not told that it has it"
    assert world.settle(at(71)).status["last"]["reason"] == "Deployed"


@pytest.mark.parametrize(("said", "end"), [("completed", "Deployed"), ("failed", "DeployFailed")])
def test_a_hot_worker_of_sedna_says_whether_it_has_loaded_the_model(
    said: WorkerStatus, end: str
) -> None:
    world = hot_world()
    fields: dict[str, Any] = {"worker": "helmet-inference", "phase": "deploy"}
    world.receive(report(**fields, attempt=1, status="failed"))  # of an earlier model
    evaluate(train(world))
    assert world.status["current"]["stage"] == "Deploy"
    world.receive(report(**fields, attempt=2, status=said))
    assert world.settle().status["last"]["reason"] == end
    assert ("deployed" in world.status) == (end == "Deployed")


@pytest.mark.parametrize("said", ["completed", "failed"])
def test_a_report_of_an_earlier_model_does_not_end_a_deployment(said: WorkerStatus) -> None:
    world = hot_world()
    world.receive(report(worker="helmet-inference", phase="deploy", attempt=3, status=said))
    evaluate(train(world))
    assert world.status["current"]["lastReport"] == 3
    del world.status["current"]["lastReport"]  # as an earlier release has written it
    assert world.settle().status["current"]["stage"] == "Deploy"
    assert world.settle(at(UPDATED_S + 121)).status["last"]["reason"] == "Deployed"


def test_a_hot_worker_of_the_sdk_says_that_it_cannot_load_the_model() -> None:
    world = evaluate(train(hot_world()))
    ends = []
    for revision, number in enumerate((10, 1), start=1):
        details = {"modelVersion": "0", "modelFault": f"version {number}: ValueError: no weights"}
        world.receive(report(worker="helmet-inference", details=details, revision=revision))
        ends.append(world.settle().status.get("last", {}).get("reason"))
    assert ends == [None, "DeployFailed"]
    assert "deployed" not in world.status


@pytest.mark.parametrize("missing", ["Model", "Dataset"])
def test_a_missing_object_stops_the_round_where_it_is(missing: str) -> None:
    world = incremental_job().settle().without(missing, {"Model": "deployed"}.get(missing, "data"))
    tell(world, "train", "/output/helmet-uid-1/1-0/model/m.pb").settle()
    assert world.status["current"]["stage"] == "Train"
    assert pods(world) == ["helmet-train-1-0"]
    assert condition(world)["reason"] == "Waiting"


def test_a_deleted_job_plans_nothing() -> None:
    assert not incremental_job().settle().delete().plan().actions


def test_a_job_of_sedna_ends_its_conditions_with_those_of_sedna() -> None:
    def last(world: World) -> tuple[str, str]:
        present = world.status["conditions"][-1]
        return present["type"], present["stage"]

    def before(world: World) -> tuple[str, str, dict[str, float]]:
        ended = world.status["conditions"][-2]
        (model,) = json.loads(ended["data"])["output"]["models"]
        assert (model["url"], model["format"]) == (f"{directory(world)}/m.pb", "pb")
        return ended["type"], ended["stage"], model.get("metrics", {})

    world = incremental_job(sedna=True)
    counted(world, data=0)
    assert last(world.settle()) == ("Waiting", "Train")
    assert last(counted(world, data=10).settle()) == ("Starting", "Train")
    assert last(world.pods_become("Running").settle()) == ("Running", "Train")
    assert last(train(world)) == ("Starting", "Eval")
    assert before(world) == ("Completed", "Train", {})
    assert last(evaluate(world)) == ("Running", "Deploy")
    assert before(world) == ("Completed", "Eval", {"precision": 0.9})
    assert last(roll_out(world).settle()) == ("Waiting", "Train")
    done = world.status["conditions"][-2]
    assert (done["type"], done["stage"], done["reason"]) == ("Completed", "Deploy", "Deployed")
    assert rfc3339(NOW) == done["lastHeartbeatTime"]


@pytest.mark.parametrize("path", ["/etc", "/root/.ssh/key", "relative", "/a/../etc/x"])
def test_a_status_cannot_mount_what_a_spec_may_not(path: str) -> None:
    world = incremental_job().settle()
    counted(world, data=0)
    current = {**world.status["current"], "url": path, "base": path, "directory": path}
    deployed = {"round": 1, "model": "deployed", "url": path, "time": rfc3339(NOW)}
    status = {**world.status, "current": current, "deployed": deployed}
    world.gone("Pod", "helmet-train-1-0").object["status"] = status
    world.settle()
    assert pods(world) == []
    assert path not in str(world.children)
    assert world.status["round"] == 1


def test_a_model_has_the_whole_path_that_the_worker_tells() -> None:
    world = incremental_job().settle()
    place = directory(world)
    tell(world, "train", f"{'/long' * 150}{place}/model.json").settle()
    assert world.status["current"]["models"] == [{"url": f"{place}/model.json", "format": "json"}]


def test_a_path_that_was_cut_names_no_model() -> None:
    world = incremental_job().settle()
    place = directory(world)
    missing = 1024 - len(f"/{place}/model.j")
    tell(world, "train", f"/{'a' * missing}{place}/model.json").settle()
    assert world.status["current"]["stage"] == "Train"


def test_metrics_can_fall_after_a_node_has_lost_its_ledger() -> None:
    world = train(incremental_job().settle())
    url = f"{directory(world)}/m.pb"
    counts = {"metrics.precision": 0.2, "metrics.1.precision": 0.5}
    before = report(worker="helmet-eval", ledger_id="old", counts={"metrics.precision": 0.99})
    after = report(
        worker="helmet-eval",
        ledger_id="new",
        status="completed",
        counts=counts,
        details={"results.0.url": url},
    )
    for each in (before, after):
        world.receive(each)
    assert world.settle().status["last"]["reason"] == "NotDeployed"


def test_a_count_of_the_inference_worker_needs_no_plan_at_once() -> None:
    world = incremental_job().settle()
    world.receive(report(worker="helmet-inference", counts={"hard": 1}, revision=1))
    before = copy.deepcopy(world.object)
    world.receive(report(worker="helmet-inference", counts={"hard": 2}, revision=2))
    assert only_counts_differ(world.kind, before, world.object)
    before = copy.deepcopy(world.object)
    tell(world, "train", f"{directory(world)}/m.pb")
    assert not only_counts_differ(world.kind, before, world.object)


@pytest.mark.parametrize(
    ("generation", "status", "begins"), [(2, "True", True), (1, "True", False), (2, "False", False)]
)
def test_a_round_waits_for_a_count_of_the_dataset_as_it_is(
    generation: int, status: str, begins: bool
) -> None:
    world = incremental_job()
    dataset = world.other("Dataset", "data")
    dataset["metadata"]["generation"] = 2
    counted_ = {"type": "Counted", "status": status, "observedGeneration": generation}
    dataset["status"]["conditions"] = [counted_]
    assert bool(pods(world.settle())) == begins
    assert (condition(world)["reason"] == "NotCounted") != begins
