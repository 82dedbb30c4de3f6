"""`edgeai get`, `wait`, `suspend`, `resume`, `scale` and `delete`, against a real API."""

import asyncio
import json
from typing import Any, Final

import pytest
import yaml
from typer.testing import CliRunner

from edgeai.api.resources import CONFIG_MAPS, Object, ObjectRef
from edgeai.cli.main import app, in_order
from edgeai.client import AsyncClient, JointInferenceService, PyTorchJob
from edgeai.kube.errors import NotFound
from tests.edgeai.cli.jobs.conftest import Run
from tests.edgeai.cli.jobs.test_commands import SERVICE
from tests.edgeai.client.conftest import condition, tell
from tests.globalmanager.cluster import LocalApi
from tests.support.waiting import async_eventually

TRAINING: Final = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: mnist}
spec:
  pytorchReplicaSpecs:
    Worker:
      replicas: 2
      template: {spec: {containers: [{name: pytorch, image: a}]}}
"""


async def submitted(client: AsyncClient, run: Run, text: str = TRAINING) -> PyTorchJob:
    assert (await run("submit", "-", text=text)).code == 0
    return await client.get(PyTorchJob, "mnist")


# ---- submit --------------------------------------------------------------------------------------

DATA: Final = """
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, labels: {team: a}}
data: {epochs: "3"}
---
apiVersion: v1
kind: Secret
metadata: {name: keys}
stringData: {token: secret-word}
---
"""


async def test_a_file_may_have_what_its_jobs_read(client: AsyncClient, run: Run) -> None:
    for text in (DATA + TRAINING, DATA.replace('"3"', '"5"') + TRAINING):
        answer = await run("submit", "-", "-n", "default", text=text)
        assert answer.out.splitlines() == [
            "ConfigMap default/settings: applied",
            "Secret default/keys: applied",
            "PyTorchJob default/mnist: applied",
        ]
        assert "secret-word" not in answer.out + answer.error
    config_map = await client.kube.get(ObjectRef(CONFIG_MAPS, "default", "settings"))
    assert (config_map["data"], config_map["metadata"]["labels"]) == (
        {"epochs": "5"},
        {"team": "a"},
    )


async def test_a_typo_in_what_jobs_read_is_named(run: Run) -> None:
    answer = await run("submit", "-", text=DATA.replace("data: {epochs", "dta: {epochs"))
    assert (answer.code, answer.out) == (1, "")
    assert "document 1 of -: dta is not a field of an object; did you mean data?" in answer.error


async def test_other_kinds_are_for_kubectl(run: Run) -> None:
    pod = "{apiVersion: v1, kind: Pod, metadata: {name: a}}"
    answer = await run("submit", "-", text=pod)
    assert "'Pod of v1' is not a kind of edgeai; use one of" in answer.error
    assert answer.error.endswith("ConfigMap of v1, Secret of v1")


# ---- get -----------------------------------------------------------------------------------------


async def test_jobs_are_listed_with_kind_phase_and_what_they_wait_for(
    client: AsyncClient, run: Run
) -> None:
    made = await submitted(client, run)
    await run("submit", "-", text=SERVICE)
    await tell(client, made.ref, condition("Stalled", "True", "CrashLoopBackOff", "it crashes"))
    rows = [line.split() for line in (await run("get")).out.splitlines()]
    assert rows[0] == ["KIND", "NAME", "PHASE", "PROGRESS", "AGE"]
    assert [row[:2] for row in rows[1:]] == [
        ["jis", "digits"],
        ["PyTorchJob", "mnist"],
    ]
    assert "it crashes" in (await run("get")).out


async def test_a_kind_and_a_name_choose_what_is_listed(client: AsyncClient, run: Run) -> None:
    made = await submitted(client, run)
    await run("submit", "-", text=SERVICE)
    for words in (["pytorchjob"], ["pytorchjobs", "mnist"], ["pytorchjob/mnist"]):
        assert (await run("get", *words, "-o", "name")).out == "pytorchjob.kubeflow.org/mnist\n"
    assert made.uid in (await run("get", "-o", "wide")).out
    assert (await run("get", "jis", "digits", "-o", "json")).json["kind"] == (
        "JointInferenceService"
    )
    (item,) = (await run("get", "jis", "-o", "json")).json["items"]
    assert item["kind"] == "JointInferenceService"
    listed = yaml.safe_load((await run("get", "jis", "-o", "yaml")).out)
    assert (listed["kind"], listed["items"][0]["spec"]) == ("List", item["spec"])


async def test_all_namespaces_are_listed_when_asked_for(client: AsyncClient, run: Run) -> None:
    await submitted(client, run)
    assert "mnist" not in (await run("get", "-n", "other")).out
    rows = [line.split() for line in (await run("get", "-A", "-n", "other")).out.splitlines()]
    assert [row[:3] for row in rows] == [
        ["NAMESPACE", "KIND", "NAME"],
        ["default", "PyTorchJob", "mnist"],
    ]


async def test_a_long_reason_is_short_in_a_table_and_whole_on_the_page(
    client: AsyncClient, run: Run
) -> None:
    made = await submitted(client, run)
    reason = "the pod mnist-worker-0 cannot be scheduled because " + "of that, " * 60 + "END"
    await tell(client, made.ref, condition("Stalled", "True", "Unschedulable", reason))
    for command in (["get"], ["status"]):
        lines = (await run(*command)).out.splitlines()
        assert max(map(len, lines)) < 240
    assert "END" not in (await run("get")).out
    page = (await run("describe", "mnist", "-o", "json")).json
    assert "of that, of that" in page["waitsFor"][0]
    assert len(page["waitsFor"][0]) > 200


# ---- suspend, resume, scale, delete --------------------------------------------------------------


async def test_a_job_is_suspended_and_resumed(client: AsyncClient, run: Run) -> None:
    await submitted(client, run)
    for verb, word, value in (("suspend", "suspended", True), ("resume", "resumed", False)):
        answer = await run(verb, "pytorchjob", "mnist")
        assert (answer.code, answer.out) == (0, f"PyTorchJob default/mnist: {word}\n")
        job = await client.get(PyTorchJob, "mnist")
        assert job.spec.run_policy.suspend is value


async def test_a_job_is_scaled(client: AsyncClient, run: Run) -> None:
    await submitted(client, run)
    scaled = (await run("scale", "mnist", "--replicas", "5", "-o", "json")).json
    assert scaled["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 5


ROLLED: Final = """
apiVersion: edgeai.io/v1alpha1
kind: JointInferenceService
metadata: {name: cameras}
spec:
  edgeWorker: {model: {name: a, hotUpdate: true}, perNode: true, nodeSelector: {a: b}}
  cloudWorker: {model: {name: b}}
  rollout: {waves: ["1", "50%"]}
"""


async def test_a_rollout_is_shown_paused_promoted_and_taken_back(
    client: AsyncClient, run: Run
) -> None:
    await run("submit", "-", text=ROLLED)
    assert (await run("rollout", "pause", "cameras")).code == 0
    assert "no status.rollout yet" in (await run("rollout", "promote", "cameras")).error
    service = await client.get(JointInferenceService, "cameras")
    version = {"generation": 2, "number": 3, "url": "https://m.test/3"}
    state: Object = {"version": version, "phase": "Complete", "wave": 1}
    await tell(client, service.ref, rollout=state)
    assert "no wave waits" in (await run("rollout", "promote", "cameras")).error
    assert "no version before 3" in (await run("rollout", "rollback", "cameras")).error
    state |= {"previous": {"generation": 2, "url": "https://m.test/2"}, "phase": "Progressing"}
    await tell(client, service.ref, rollout=state)
    answers = [await run("rollout", verb, "cameras") for verb in ("resume", "promote", "rollback")]
    assert [answer.code for answer in answers] == [0, 0, 0]
    rollout = (await client.get(JointInferenceService, "cameras")).object["spec"]["rollout"]
    assert rollout == {
        "waves": ["1", "50%"],
        "paused": False,
        "promoted": {"version": 3, "wave": 2},
        "rejected": 3,
    }
    shown = await run("rollout", "status", "cameras")
    assert "version:        3 (https://m.test/3)" in shown.out
    assert (await run("rollout", "status", "cameras", "-o", "json")).json["wave"] == "1 of 3"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["rollout", "pause", "digits"], "the job has no spec.rollout"),
        (["suspend", "digits"], "a JointInferenceService cannot be suspended"),
        (["scale", "digits", "--replicas", "3"], "a JointInferenceService cannot be scaled"),
        (["scale", "digits", "--replicas", "1001"], "1001 is not a number from 0 to 1000"),
        (["resume", "none"], "there is none in namespace default"),
        (["delete", "pod", "a"], "'pod' is not a kind of edgeai"),
        (["delete", "jis/digits", "-n", "x/../default"], "namespace 'x/../default' is invalid"),
        (["get", "digits"], "'digits' is not a kind of edgeai"),
        (["delete", "pytorchjbo", "a"], "(did you mean pytorchjob?)"),
        (["describe", "digts"], "did you mean digits? `edgeai get -A` lists"),
    ],
)
async def test_what_a_job_cannot_is_named(words: list[str], problem: str, run: Run) -> None:
    await run("submit", "-", text=SERVICE)
    answer = await run(*words)
    assert (answer.code, answer.out) == (1, "")
    assert problem in answer.error


async def test_an_object_is_deleted(client: AsyncClient, run: Run) -> None:
    await run("submit", "-", text=SERVICE)
    assert (await run("delete", "jis", "digits")).out == (
        "JointInferenceService default/digits: deleted\n"
    )
    with pytest.raises(NotFound):
        await client.get(JointInferenceService, "digits")


async def test_a_change_is_for_the_job_that_was_found_and_for_no_other(
    client: AsyncClient, run: Run
) -> None:
    made = await submitted(client, run)
    await client.delete(made)
    await submitted(client, run)
    for change in (client.suspend(made), client.resume(made), client.scale(made, 3)):
        with pytest.raises(Exception, match="uid"):
            await change


# ---- wait ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("type_", "code"), [("Succeeded", 0), ("Failed", 1)])
async def test_a_wait_ends_with_the_result_of_the_job(
    type_: str, code: int, cluster: LocalApi, client: AsyncClient, run: Run
) -> None:
    made = await submitted(client, run)
    before = cluster.watches
    waiting = asyncio.create_task(run("wait", "mnist", "--timeout-s", "60"))
    await async_eventually("the watch of the command", lambda: cluster.watches > before)
    assert not waiting.done()
    await tell(client, made.ref, condition(type_, "True", "Because"))
    answer = await waiting
    assert (answer.code, answer.out) == (code, f"PyTorchJob default/mnist: {type_.lower()}\n")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["get", "jis", "digits", "-A"], "-A lists a kind"),
        (["get", "a", "b", "c"], "'a b c' is more than a kind and a name"),
        (["logs", "digits", "--since", "0s"], "'0s' is no time; write it as 30s, 10m or 2h"),
        (["logs", "digits", "--since", "ten"], "'ten' is no time"),
        (["logs", "digits", "-f", "-p"], "leave out -f or -p"),
        (["scale", "digits"], "Missing option '--replicas'"),
    ],
)
async def test_a_line_that_is_wrong_is_explained(words: list[str], problem: str, run: Run) -> None:
    answer = await run(*words)
    assert (answer.code, answer.out) == (2, "")
    assert problem in " ".join(answer.error.split())


async def test_a_job_without_workers_is_not_scaled(client: AsyncClient, run: Run) -> None:
    await submitted(client, run, TRAINING.replace("Worker:", "Master:").replace("replicas: 2", ""))
    answer = await run("scale", "mnist", "--replicas", "2")
    assert "PyTorchJob default/mnist has no workers whose number is set" in answer.error


async def test_a_wait_ends_with_a_condition_or_with_the_deadline(
    client: AsyncClient, run: Run
) -> None:
    made = await submitted(client, run)
    await tell(client, made.ref, condition("Running", "True", "Because"))
    assert (await run("wait", "mnist", "--for", "Running")).code == 0
    late = await run("wait", "mnist", "--for", "Suspended", "--timeout-s", "0.1")
    assert (late.code, "Suspended did not come within 0.1 s" in late.error) == (2, True)
    wrong = await run("wait", "mnist", "--for", "a b")
    assert (wrong.code, "condition 'a b' is none" in wrong.error) == (1, True)


async def test_an_object_that_stays_is_waited_for_to_the_deadline(
    client: AsyncClient, run: Run
) -> None:
    await submitted(client, run)
    late = await run("wait", "mnist", "--for", "deleted", "--timeout-s", "0.1")
    assert (late.code, "deleted did not come within 0.1 s" in late.error) == (2, True)
    gone = ("wait", "jis", "mnist", "--for", "deleted")
    assert (await run(*gone)).out == "jis/mnist: there is none\n"
    assert (await run(*gone, "-o", "json")).json is None
    assert (await run(*gone, "-o", "name")).out == ""


# ---- which cluster -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "ordered"),
    [
        ("-n team get jis", "get -n team jis"),
        ("--context=a -A -o json get", "get --context=a -A -o json"),
        ("get -n team", "get -n team"),
        ("-nteam -ojson get", "get -nteam -ojson"),
        ("-n team get -- jis", "get -n team -- jis"),
        ("--help", "--help"),
        ("-n", "-n"),
        ("", ""),
    ],
)
def test_options_may_stand_before_the_command(line: str, ordered: str) -> None:
    assert in_order(line.split()) == ordered.split()


@pytest.mark.parametrize("line", ["-o json demo joint-inference --help", "-n team get --help"])
def test_options_before_the_command_are_those_of_the_command(line: str) -> None:
    assert CliRunner().invoke(app, line.split()).exit_code == 0


async def test_a_context_is_used_by_its_name(
    cluster: LocalApi, client: AsyncClient, run: Run
) -> None:
    await submitted(client, run)
    content: Object = yaml.safe_load(cluster.kubeconfig.read_text())
    (context,) = content["contexts"]
    other: Any = {**context["context"], "namespace": "other"}
    content["contexts"] += [{"name": "other", "context": other}]
    cluster.kubeconfig.write_text(json.dumps(content))
    assert "mnist" in (await run("get")).out
    assert "mnist" not in (await run("get", "--context", "other")).out
    answer = await run("get", "--context", "none")
    assert "context 'none' is not among its contexts: " in answer.error
