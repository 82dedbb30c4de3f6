"""Pods, restarts and the scale history on the page of a job."""

from typing import Any

import pytest

from edgeai.api.elastic import SCALE_INS, SCALE_OUTS
from edgeai.api.resources import ObjectRef, ResourceType
from globalmanager.rest.console import details
from globalmanager.rest.console.recent import POINTS
from tests.globalmanager.rest.authority import Authority
from tests.globalmanager.rest.cluster import JI, TYPES, RestSide
from tests.globalmanager.rest.console.conftest import Browser

JOB = f"/jobs/{JI}.edgeai.io/a/digits"
(TYPE,) = (type_ for type_ in TYPES if str(type_) == f"{JI}.edgeai.io")
REF = ObjectRef(TYPE, "a", "digits")


def pod(status: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {"nodeName": "node-1"}, "status": status}


def waiting(reason: str, restarts: int) -> dict[str, Any]:
    return {"restartCount": restarts, "state": {"waiting": {"reason": reason}}}


@pytest.mark.parametrize(
    ("status", "restarts", "why"),
    [
        ({"phase": "Running", "containerStatuses": [{"restartCount": 2}]}, 2, ""),
        (
            {
                "phase": "Running",
                "initContainerStatuses": [{"restartCount": 1}],
                "containerStatuses": [waiting("CrashLoopBackOff", 4)],
            },
            *(5, "CrashLoopBackOff"),
        ),
        (
            {
                "containerStatuses": [
                    {"state": {"terminated": {"exitCode": 137, "reason": "Error"}}}
                ]
            },
            *(0, "Error, exit code 137"),
        ),
        (
            {
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
                ]
            },
            *(0, "Unschedulable"),
        ),
        ({"phase": "Failed", "reason": "Evicted"}, 0, "Evicted"),
        (
            {
                "phase": "Running",
                "initContainerStatuses": [
                    {"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
                ],
            },
            *(0, ""),
        ),
        ({"containerStatuses": [{"state": {"terminated": {"reason": "Lost"}}}]}, 0, "Lost"),
        ({"containerStatuses": [{"state": {"terminated": {"exitCode": 0}}}]}, 0, ""),
        ({"containerStatuses": [{"restartCount": "x", "state": []}, 7]}, 0, ""),
    ],
)
def test_a_pod_says_how_often_it_was_restarted_and_why_it_is_not_well(
    status: dict[str, Any], restarts: int, why: str
) -> None:
    row = details.pod_row(pod(status))
    assert (row["restarts"], row["why"]) == (restarts, why)


@pytest.mark.parametrize(
    ("phase", "code", "why"), [("Succeeded", 0, ""), ("Failed", 1, "Error, exit code 1")]
)
def test_a_sidecar_that_is_stopped_after_the_work_is_not_why(
    phase: str, code: int, why: str
) -> None:
    def ended(name: str, code: int) -> dict[str, Any]:
        state = {"exitCode": code, "reason": "Error" if code else "Completed"}
        return {"name": name, "state": {"terminated": state}}

    sidecar = {"name": "proxy", "restartPolicy": "Always"}
    status = {
        "phase": phase,
        "initContainerStatuses": [ended("proxy", 143)],
        "containerStatuses": [ended("main", code)],
    }
    row = details.pod_row({**pod(status), "spec": {"initContainers": [sidecar]}})
    assert row["why"] == why


def test_restarts_of_pods_that_are_gone_count() -> None:
    status = {
        "restarts": {"w-0": 2, "w-1": 0, "w-2": "x"},
        "jobRestarts": 1,
        "restartCount": 3,
        "replacedWorkers": 4,
    }
    assert details.restarts_of(status) == [
        ("the job", 1),
        ("the launcher", 3),
        ("lost workers, replaced", 4),
        ("w-0", 2),
    ]


@pytest.mark.parametrize(
    ("type_", "spec", "change"),
    [
        (SCALE_OUTS, {"toAdd": {"count": 2}}, "+2"),
        (SCALE_INS, {"toDelete": {"count": 1}}, "-1"),
        (SCALE_INS, {"toDelete": {"podNames": ["a", "b", "c"]}}, "-3"),
        (SCALE_INS, {"toDelete": "x"}, ""),
    ],
)
def test_a_step_of_the_scale_history(type_: ResourceType, spec: Any, change: str) -> None:
    status = {"phase": "ScaleSucceeded", "startTime": "t1", "completionTime": "t2"}
    scaler = {"metadata": {"name": "s"}, "spec": spec, "status": status}
    row = details.scale_row(ObjectRef(type_, "a", "s"), scaler)
    assert (row["change"], row["began"], row["ended"]) == (change, "t1", "t2")


def test_a_timeline_has_phases_restarts_and_scalings_the_newest_first() -> None:
    def at(minute: int) -> str:
        return f"2026-01-01T00:{minute:02}:00Z"

    job = {
        "metadata": {"name": "digits", "creationTimestamp": at(0)},
        "status": {
            "conditions": [
                {
                    "type": "Running",
                    "status": "True",
                    "reason": "JobRunning",
                    "lastTransitionTime": at(1),
                }
            ]
        },
    }
    state = {
        "name": "main",
        "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": at(3)}},
        "state": {"running": {"startedAt": at(4)}},
    }
    scaler = {
        "metadata": {"name": "more"},
        "spec": {"toAdd": {"count": 2}},
        "status": {"phase": "ScaleSucceeded", "startTime": at(5), "completionTime": at(6)},
    }
    moments = details.timeline_of(
        job, [pod({"containerStatuses": [state]})], [(ObjectRef(SCALE_OUTS, "a", "more"), scaler)]
    )
    assert [(moment["at"][14:16], moment["what"], moment["tone"]) for moment in moments] == [
        ("06", "ScaleOut more: ScaleSucceeded", "done"),
        ("05", "ScaleOut more +2", "waiting"),
        ("04", "p, container main started", "good"),
        ("03", "p, container main: OOMKilled, exit code 137", "bad"),
        ("01", "Running", "good"),
        ("00", "Created", "done"),
    ]


def test_a_finished_federation_has_a_curve_over_its_rounds() -> None:
    history = [
        {"key": "accuracy", "rounds": [1, 2, 4], "values": ["0.5", "0.75", "odd"]},
        {"key": "loss", "rounds": [2], "values": ["1"]},
        {"key": "other", "rounds": "x"},
    ]
    curve = details.curve_by_round({"status": {"history": history}})
    assert curve is not None
    assert (curve.is_by_round, curve.times) == (True, [1.0, 2.0, 4.0])
    assert curve.series == {"accuracy": [0.5, 0.75, None], "loss": [None, 1.0, None]}
    assert details.curve_by_round({"status": {"history": [{"rounds": [True]}]}}) is None


def test_a_curve_over_rounds_has_a_bound_whoever_wrote_the_history() -> None:
    numbers = [10**400, *range(1000)]
    history = [{"key": "loss", "rounds": numbers, "values": [*numbers[1:], 10**400]}]
    curve = details.curve_by_round({"status": {"history": history}})
    assert curve is not None
    assert curve.times == [float(number) for number in range(1000 - POINTS, 1000)]
    assert curve.series["loss"] == [*(float(number) for number in range(1001 - POINTS, 1000)), None]


def test_a_moment_of_the_timeline_has_a_key_of_its_own() -> None:
    condition = {"type": "Running", "reason": "Running", "lastTransitionTime": "2026-01-01"}
    job = {"metadata": {"name": "digits"}, "status": {"conditions": [condition] * 2}}
    assert [moment["what"] for moment in details.timeline_of(job, [], [])] == ["Running "]


async def test_the_page_shows_pods_restarts_and_scalers(
    browser: Browser, guarded: RestSide
) -> None:
    pods = [pod({"phase": "Running", "containerStatuses": [waiting("CrashLoopBackOff", 4)]})]
    guarded.cluster.pods_of[REF] = pods
    guarded.cluster.objects[0]["status"] = {
        "restarts": {"w-0": 2},
        "targetWorkers": ["w-0", "w-1"],
        "elastic": {"ready": 1, "waiting": 1, "limit": 4},
    }
    guarded.cluster.scalers_of[REF] = {
        ObjectRef(TYPE, "a", name): {"metadata": {"name": name, "creationTimestamp": at}}
        for name, at in (("old", "2026-01-01T00:00:00Z"), ("new", "2026-01-02T00:00:00Z"))
    }
    await browser.log_in("ann's")
    text = (await browser.get(JOB)).text
    assert '<span class="remedy">CrashLoopBackOff</span>' in text
    assert '<td data-label="Restarts">4</td>' in text
    assert "Started again: w-0: 2" in text
    assert "<dt>wanted</dt><dd>2</dd><dt>ready</dt><dd>1</dd>" in text
    assert text.index("JointInferenceService new") < text.index("JointInferenceService old")


async def test_a_scaler_of_a_type_that_the_viewer_may_not_list_is_not_shown(
    browser: Browser, guarded: RestSide, authority: Authority
) -> None:
    authority.rights_of["nobody"] = [{"verb": "list", "resource": JI}]
    guarded.cluster.scalers_of[REF] = {
        ObjectRef(SCALE_OUTS, "a", "of-others"): {"metadata": {"name": "of-others"}}
    }
    await browser.log_in("nobody's")
    answer = await browser.get(JOB)
    assert (answer.status, "of-others" in answer.text) == (200, False)


async def test_a_job_that_has_no_pods_asks_for_no_right_to_them(
    browser: Browser, authority: Authority
) -> None:
    authority.rights_of["nobody"] = [{"verb": "list", "resource": each} for each in (JI, "models")]
    await browser.log_in("nobody's")
    assert "You may not list pods" in (await browser.get(JOB)).text
    asked = [each["resourceAttributes"]["resource"] for each in authority.asked]
    assert asked.count("pods") == 1
    model = await browser.get("/jobs/models.edgeai.io/a/small")
    assert (model.status, "You may not list pods" in model.text) == (200, False)
    asked = [each["resourceAttributes"]["resource"] for each in authority.asked]
    assert asked.count("pods") == 1


async def test_a_page_shows_a_bounded_number_of_pods(browser: Browser, guarded: RestSide) -> None:
    pods = [{**pod({}), "metadata": {"name": f"w-{number}"}} for number in range(1000)]
    guarded.cluster.pods_of[REF] = pods
    await browser.log_in("ann's")
    text = (await browser.get(JOB)).text
    assert (text.count('id="pod-'), "and 800 more" in text) == (200, True)
    assert len(text) < 120_000


def test_a_node_says_what_it_has_and_what_pods_may_use() -> None:
    whole = {"cpu": "8", "memory": "16777216Ki", "nvidia.com/gpu": "2", "hugepages-2Mi": "0"}
    pressure = {"type": "MemoryPressure", "status": "True", "reason": "KubeletHasLittleMemory"}
    info = {"osImage": "Debian 12", "architecture": "arm64", "kubeletVersion": "v1.34.4"}
    facts = details.node_facts(
        {
            "status": {
                "nodeInfo": info,
                "capacity": whole,
                "allocatable": {**whole, "cpu": "7500m"},
                "conditions": [pressure, {"type": "Ready", "status": "True"}],
            }
        }
    )
    assert dict(facts) == {
        "System": "Debian 12, arm64, v1.34.4",
        "CPUs": "7500m of 8",
        "Memory": "16.0 GiB",
        "GPUs": "2",
        "MemoryPressure": "True, KubeletHasLittleMemory",
    }
