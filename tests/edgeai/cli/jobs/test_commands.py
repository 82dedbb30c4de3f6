"""`edgeai describe`, `logs`, `submit` and `status`, against a real API without a GlobalManager."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from typer.testing import CliRunner

from edgeai.api.model import ModelSpec
from edgeai.api.objects import LABEL_ROLE
from edgeai.api.resources import (
    DEPLOYMENTS,
    NAMESPACES,
    NODES,
    PODS,
    REPLICASETS,
    SERVICES,
    Object,
    ObjectRef,
)
from edgeai.cli.api import Api
from edgeai.cli.environment import Environment
from edgeai.cli.jobs.submitting import submit, wait_for_all
from edgeai.cli.main import app
from edgeai.cli.status_sources import from_local
from edgeai.cli.system import GLOBALMANAGER, HTTP_PORT, NAMESPACE
from edgeai.client import AsyncClient, JointInferenceService, Model
from edgeai.localcluster.state import ClusterProcess
from globalmanager.kinds.training.edge_placement import EDGE_LABEL
from tests.edgeai.cli.command import start
from tests.edgeai.cli.jobs.conftest import Run
from tests.edgeai.client.conftest import add_pod, condition, tell
from tests.edgeai.client.test_client import RUNNING, Logs
from tests.globalmanager.cluster import LocalApi
from tests.support.waiting import async_eventually

SERVICE: Final = """
apiVersion: edgeai.io/v1alpha1
kind: JointInferenceService
metadata: {name: digits}
spec:
  edgeWorker: {model: {name: small}, template: {spec: {containers: [{name: e, image: a}]}}}
  cloudWorker: {model: {name: big}, template: {spec: {containers: [{name: c, image: a}]}}}
"""
MODEL: Final = """
apiVersion: edgeai.io/v1alpha1
kind: Model
metadata: {name: small}
spec: {url: /models/small.npz}
"""
MODEL_OBJECT: Final = yaml.safe_load(MODEL)
BAD: Final = "Model default/small does not exist\x1b]0;owned\x07: create it"


async def service(client: AsyncClient, run: Run) -> JointInferenceService:
    done = await run("submit", "-", text=SERVICE)
    assert (done.code, done.out) == (0, "JointInferenceService default/digits: applied\n")
    return await client.get(JointInferenceService, "digits")


async def child(client: AsyncClient, type_: Any, name: str, owner: Object) -> Object:
    metadata: Object = {"name": name, "namespace": "default"}
    reference = {key: owner["metadata"][key] for key in ("name", "uid")}
    reference |= {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
    metadata["ownerReferences"] = [reference]
    spec = {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "main", "image": "any"}]},
        },
    }
    return await client.kube.create(type_, {"metadata": metadata, "spec": spec})


async def with_pod(client: AsyncClient, made: JointInferenceService) -> None:
    """Job -> Deployment -> ReplicaSet -> pod."""
    deployment = await child(client, DEPLOYMENTS, "digits-edge", made.object)
    replicas = await child(client, REPLICASETS, "digits-edge-1", deployment)
    await add_pod(client, "digits-edge-1-a", replicas, "edge0", **RUNNING)


# ---- describe ------------------------------------------------------------------------------------


async def test_a_job_is_described_with_what_it_waits_for_and_what_to_do(
    client: AsyncClient, run: Run
) -> None:
    made = await service(client, run)
    await with_pod(client, made)
    bad = condition("ResolvedRefs", "False", "ModelNotFound", BAD)
    entry = {"node": "edge0", "attempt": 3, "phase": "Serving", "taskInfo": {"seen": 7}}
    await tell(client, made.ref, bad, phase="Pending", workers={"digits-edge-1-a": entry})
    page = (await run("describe", "jis/digits")).out
    for words in (
        "JointInferenceService default/digits (edgeai.io/v1alpha1)",
        "A small model on the edge sends hard samples",
        "phase Pending",
        "- Model default/small does not exist]0;owned: create it",
        "- ModelNotFound: create the Model that the message names",
    ):
        assert words in page
    row = next(line.split() for line in page.splitlines() if "digits-edge-1-a" in line)
    assert row == ["digits-edge-1-a", "-", "edge0", "Running", "3", "0", "seen", "7"]
    assert "\x1b" not in page


async def test_a_description_is_json_for_programs(client: AsyncClient, run: Run) -> None:
    made = await service(client, run)
    told = (await run("describe", "digits", "-o", "json")).json
    assert (told["uid"], told["result"], told["workers"]) == (made.uid, "", [])
    assert told["waitsFor"] == [
        "no GlobalManager has written a status yet: `edgeai doctor` says whether one runs"
    ]


async def test_a_job_in_good_order_waits_for_nothing(client: AsyncClient, run: Run) -> None:
    made = await service(client, run)
    await tell(client, made.ref, condition("Running", "True", "WorkersAvailable"), phase="Running")
    page = (await run("describe", "digits")).out
    assert "waits for" not in page
    assert "what to do" not in page


@pytest.mark.parametrize(
    ("job", "words"),
    [
        ("none", "there is none in namespace default; `edgeai get -A` lists"),
        ("pods/a", "'pods' is not a kind of edgeai; use one of jointinferenceservice (jis, ji)"),
        ("A B", "JOB 'A B' is invalid"),
        ("jis/\x1b[2J", "is invalid"),
    ],
)
async def test_a_job_that_is_none_is_named_with_what_to_do(run: Run, job: str, words: str) -> None:
    for command in ("describe", "logs"):
        answer = await run(command, job)
        assert (answer.code, answer.out) == (1, "")
        assert words in answer.error
        assert answer.error.isprintable()


async def test_jobs_of_one_name_are_told_apart_by_kind_and_group(
    client: AsyncClient, run: Run
) -> None:
    await service(client, run)
    await run("submit", "-", text=SERVICE.replace("edgeai.io", "sedna.io"))
    answer = await run("describe", "digits")
    assert "write jointinferenceservice.edgeai.io/digits or jointinfer" in answer.error
    assert "sedna.io/v1alpha1" in (await run("describe", "ji/digits")).out
    assert "edgeai.io/v1alpha1" in (await run("describe", "jis/digits")).out


async def test_a_job_goes_before_a_model_of_its_name(client: AsyncClient, run: Run) -> None:
    await client.apply(Model.of("digits", ModelSpec(url="/a")))
    await service(client, run)
    assert "JointInferenceService default/digits" in (await run("describe", "digits")).out
    assert "Model default/digits" in (await run("describe", "mdl/digits")).out


async def test_an_api_that_is_away_is_named(cluster: LocalApi, run: Run) -> None:
    await cluster.stop()
    for words in (["describe", "a"], ["logs", "a"], ["status"], ["submit", "-"]):
        answer = await run(*words, text=MODEL)
        assert (answer.code, answer.out) == (1, "")
        assert "127.0.0.1" in answer.error


# ---- logs ----------------------------------------------------------------------------------------


async def test_the_logs_of_all_workers_have_their_names_before_them(
    cluster: LocalApi, client: AsyncClient, run: Run
) -> None:
    await with_pod(client, await service(client, run))
    await add_pod(client, "digits-edge-stranger", None, "edge0", **RUNNING)
    cluster.serve_logs(Logs(**{"digits-edge-1-a": ["2026-01-01T00:00:01Z [red]\x1b[31mone"]}))
    assert (await run("logs", "digits")).out == "digits-edge-1-a [red][31mone\n"
    (line,) = (await run("logs", "digits", "-o", "json")).out.splitlines()
    assert '"node":"edge0","time":"2026-01-01T00:00:01Z"' in line
    none = await run("logs", "digits", "--worker", "cloud")
    assert (none.code, none.out) == (1, "")
    assert "no pod of 'digits' matches --worker cloud, or it has no log yet;" in none.error


async def test_the_log_of_the_run_before_is_read_in_part_and_with_times(
    cluster: LocalApi, client: AsyncClient, run: Run
) -> None:
    await with_pod(client, await service(client, run))
    logs = Logs(**{"digits-edge-1-a": ["2026-01-01T00:00:01Z the last words"]})
    cluster.serve_logs(logs)
    part = ("--previous", "--tail", "5")
    answer = await run("logs", "digits", *part, "--timestamps")
    assert answer.out == "2026-01-01T00:00:01Z digits-edge-1-a the last words\n"
    (query,) = logs.queries
    assert (query.previous, query.tail_lines) == (True, 5)


async def test_an_edge_node_without_log_streams_says_so(
    cluster: LocalApi, client: AsyncClient, run: Run
) -> None:
    await with_pod(client, await service(client, run))
    cluster.serve_logs(Logs())
    assert "node edge0 does not stream logs" in (await run("logs", "digits")).out


# ---- submit --------------------------------------------------------------------------------------


async def test_a_file_of_several_documents_is_applied_in_order(
    client: AsyncClient, run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(f"---\n{MODEL}---\n{SERVICE}---\n")
    told = await run("submit", str(file), "-o", "json")
    assert [each["kind"] for each in told.json] == ["Model", "JointInferenceService"]
    assert told.error.splitlines()[0] == "Model default/small: applied"
    await client.kube.create(NAMESPACES, {"metadata": {"name": "other"}})
    await run("submit", str(file), "-n", "other")
    assert [each.name for each in await client.list(Model, namespace="other")] == ["small"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no document; write one"),
        ("a: [", "is not valid YAML"),
        (f"{MODEL}---\nkind: Pod\napiVersion: v1\n", "document 2 of -: 'Pod of v1' is not a kind"),
        (f"{MODEL}---\n- 1\n", "document 2 of -: the whole is not a mapping"),
        (MODEL.replace("small}", "S}"), "document 1 of -: metadata.name 'S' is no name"),
        (MODEL.replace("small}", '"a\\e[2J"}'), "metadata.name 'a\\x1b[2J' is no name"),
        ("!!python/object/apply:os.system [id]", "is not valid YAML"),
    ],
)
async def test_a_file_that_is_wrong_is_named_before_anything_is_applied(
    client: AsyncClient, run: Run, text: str, words: str
) -> None:
    answer = await run("submit", "-", text=text)
    assert answer.code == 1
    assert words in answer.error
    assert await client.list(Model) == []


async def test_an_object_of_another_namespace_than_the_one_asked_for_is_refused(run: Run) -> None:
    text = MODEL.replace("{name: small}", "{name: small, namespace: a}")
    answer = await run("submit", "-", "-n", "b", text=text)
    assert "document 1 of -: metadata.namespace is 'a', but -n is 'b'; leave out" in answer.error


async def test_a_file_that_is_not_there_is_named(run: Run, tmp_path: Path) -> None:
    assert "No such file" in (await run("submit", str(tmp_path / "none.yaml"))).error
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    assert "is not UTF-8 text" in (await run("submit", str(tmp_path / "binary"))).error
    assert "Is a directory" in (await run("submit", str(tmp_path))).error


async def submitted(client: AsyncClient, run: Run, *conditions: Object) -> Any:
    """What `submit --wait` says of a Model that gets these conditions."""
    command = asyncio.create_task(run("submit", "-", "--wait", "--timeout-s", "20", text=MODEL))
    ref = ObjectRef(Model.type_in(), "default", "small")

    async def is_there() -> bool:
        return bool(await client.list(Model))

    await async_eventually("the Model", is_there)
    await tell(client, ref, *conditions)
    return await command


async def test_a_success_ends_the_wait_with_0(client: AsyncClient, run: Run) -> None:
    answer = await submitted(client, run, condition("Accepted", "True", "Valid"))
    assert (answer.code, answer.out.splitlines()[-1]) == (0, "Model default/small: succeeded")


async def test_a_failure_ends_the_wait_with_1(client: AsyncClient, run: Run) -> None:
    bad = condition("Accepted", "False", "InvalidSpec", "spec.url: is no URL")
    answer = await submitted(client, run, bad)
    assert answer.code == 1
    last = answer.out.splitlines()[-1]
    assert last == "Model default/small: failed (spec.url: is no URL)"


async def test_the_deadline_ends_the_wait_with_2(run: Run) -> None:
    answer = await run("submit", "-", "--wait", "--timeout-s", "0.3", text=MODEL)
    assert answer.code == 2
    assert "did not come within 0.3 s: no GlobalManager has written" in answer.out


async def test_an_object_that_is_created_anew_ends_the_wait_with_1(
    client: AsyncClient, run: Run
) -> None:
    command = asyncio.create_task(run("submit", "-", "--wait", "--timeout-s", "20", text=MODEL))

    async def is_replaced() -> bool:
        for each in await client.list(Model):
            await client.delete(each)
            await client.apply(each)
            return True
        return False

    await async_eventually("the Model", is_replaced)
    answer = await command
    assert answer.code == 1
    assert "was deleted" in answer.out


async def test_an_object_of_the_same_name_is_not_waited_for(client: AsyncClient) -> None:
    lines: list[str] = []
    made = await submit(client, [MODEL_OBJECT], lines.append)
    await client.delete(made[0])
    new = await client.apply(Model(MODEL_OBJECT))
    await tell(client, new.ref, condition("Accepted", "True", "Valid"))
    code, _ = await wait_for_all(client, made, 20, lines.append)
    assert (code, "created again" in lines[-1]) == (1, True)


# ---- status --------------------------------------------------------------------------------------


async def test_the_status_comes_from_the_api_where_there_is_no_rest(
    client: AsyncClient, run: Run
) -> None:
    made = await service(client, run)
    await tell(client, made.ref, condition("Running", "False", "Starting"), phase="Pending")
    await client.kube.create(NODES, {"metadata": {"name": "edge0", "labels": {EDGE_LABEL: ""}}})
    await client.kube.create(NODES, {"metadata": {"name": "cloud0"}})
    lines = [line.split() for line in (await run("status")).out.splitlines()]
    assert ["edge0", "no", "session", "-", "?/?", "-"] in lines
    assert ["cloud0", "none", "needed", "-", "?/?", "-"] in lines
    row = ["jis", "default/digits", "Pending"]
    assert [line[:3] for line in lines if "default/digits" in line] == [row]
    assert "digits" in (await run("status", "-n", "default")).out
    assert "digits" not in (await run("status", "-n", "other")).out
    told = (await run("status", "-o", "json")).json
    assert [each["metadata"]["name"] for each in told["jobs"]] == ["digits"]
    assert [each["connected"] for each in told["nodes"]] == [False, False]


COMPLETIONS: Final = {
    "edgeai de": "delete demo describe",
    "edgeai logs di": "digits",
    "edgeai get j": "ji jis",
    "edgeai delete mdl d": "dog",
    "edgeai -n other -o json de": "delete demo describe",
    "edgeai -n default logs di": "digits",
    "edgeai -n other logs di": "",
    "edgeai logs digits ": "--worker",
    "edgeai logs jis digits ": "--worker",
    "edgeai describe digits ": "",
    "edgeai logs digits --worker ": "digits-edge-1-a edge",
    "edgeai -n default logs jis digits --worker digits-": "digits-edge-1-a",
    "edgeai logs none --worker ": "",
    "edgeai -o json demo jo": "joint-inference",
}
"""What stands before the cursor -> what may follow."""


async def test_completion_knows_the_commands_the_jobs_and_their_workers(
    cluster: LocalApi, client: AsyncClient, run: Run
) -> None:
    await with_pod(client, await service(client, run))
    labels = {"metadata": {"labels": {LABEL_ROLE: "edge"}}}
    await client.kube.merge_patch(ObjectRef(PODS, "default", "digits-edge-1-a"), labels)
    await client.apply(Model.of("dog", ModelSpec(url="/a")))  # no job
    for line, words in COMPLETIONS.items():

        async def is_offered(line: str = line, words: str = words) -> bool:
            answer = await asyncio.to_thread(completed, line, cluster)
            assert answer == words, answer
            return True

        await async_eventually(line, is_offered)  # a busy machine may need more than the deadline

    async def is_offered_by_the_program() -> bool:
        return await asyncio.to_thread(completed_apart, "edgeai logs di", cluster) == "digits"

    await async_eventually("edgeai logs di", is_offered_by_the_program)
    await cluster.stop()
    assert await asyncio.to_thread(completed, "edgeai logs di", cluster) == ""


def completed(line: str, cluster: LocalApi) -> str:
    """What bash would offer, in its order."""
    done = CliRunner().invoke(app, [], prog_name="edgeai", env=completion(line, cluster))
    assert (done.stderr, done.exception) == ("", None)
    return " ".join(sorted(done.stdout.split()))


def completed_apart(line: str, cluster: LocalApi) -> str:
    """As `completed`, in a process of its own."""
    command = str(Path(sys.executable).parent / "edgeai")
    environment = {**os.environ, **completion(line, cluster)}
    done = subprocess.run([command], env=environment, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return " ".join(done.stdout.split())


def completion(line: str, cluster: LocalApi) -> dict[str, str]:
    """How bash asks for it, with the user's kubeconfig."""
    words = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    return {"_EDGEAI_COMPLETE": "complete_bash", "KUBECONFIG": str(cluster.kubeconfig), **words}


async def test_a_log_is_followed_until_ctrl_c(
    cluster: LocalApi, client: AsyncClient, run: Run, tmp_path: Path
) -> None:
    await with_pod(client, await service(client, run))
    cluster.serve_logs(Logs(**{"digits-edge-1-a": ["2026-01-01T00:00:01Z one"]}))
    process = start("logs", "digits", "-f", "--kubeconfig", str(cluster.kubeconfig))
    assert process.stdout is not None
    line = await asyncio.to_thread(process.stdout.readline)
    assert line == "digits-edge-1-a one\n"
    process.send_signal(signal.SIGINT)
    _, error = await asyncio.to_thread(process.communicate, timeout=60)
    assert (process.returncode, error) == (130, "")


async def test_the_status_falls_back_to_the_api_where_the_local_rest_is_away(
    cluster: LocalApi, client: AsyncClient, run: Run
) -> None:
    await service(client, run)
    address = "127.1.2.3"  # of nobody
    spec = {"clusterIP": address, "ports": [{"port": HTTP_PORT}]}
    metadata = {"name": GLOBALMANAGER, "namespace": NAMESPACE}
    await client.kube.create(SERVICES, {"metadata": metadata, "spec": spec})
    kubeconfig = cluster.kubeconfig
    process = ClusterProcess(
        pid=1, start_ticks=1, api="", network="127.1", nodes={}, kubeconfig=kubeconfig
    )
    running = Environment(kubeconfig.parent, process, Api.from_kubeconfig(kubeconfig))
    told = await asyncio.to_thread(from_local, running)
    assert [each["metadata"]["name"] for each in told.jobs] == ["digits"]
    assert f"does not answer at http://{address}" in told.unknown[0]
