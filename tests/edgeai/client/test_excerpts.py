"""The last lines of a crashed container, beside its fault."""

from collections.abc import AsyncIterator
from typing import Any

from edgeai.api.resources import Object
from edgeai.client import AsyncClient, Model
from edgeai.client.excerpts import MAX_LINE_CHARS, MAX_LINES, MAX_LOGS
from edgeai.localcluster.objects import errors as refusals
from edgeai.localcluster.objects.containers import LogQuery
from tests.edgeai.cli.jobs.conftest import Run, run
from tests.edgeai.client.conftest import add_pod, condition, tell
from tests.edgeai.client.test_client import MODEL
from tests.globalmanager.cluster import LocalApi

__all__ = ["run"]

ENDED: Any = {"terminated": {"exitCode": 3, "reason": "Error"}}
PULLING: Any = {
    "name": "side",
    "restartCount": 0,
    "state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}},
}
TIME = "2026-01-01T00:00:01Z"


class Logs:
    """A kubelet with the log of each run: (pod, whether it is the run before) -> its lines."""

    def __init__(self, lines: dict[tuple[str, bool], list[str]]) -> None:
        self._lines = lines
        self.queries: list[LogQuery] = []

    async def __call__(self, query: LogQuery) -> AsyncIterator[bytes]:
        self.queries.append(query)
        if (query.pod, query.previous) not in self._lines:
            raise refusals.APIError("proxy error: dial tcp 10.0.0.1:10350: connection refused")
        for line in self._lines[query.pod, query.previous][-(query.tail_lines or 0) :]:
            yield f"{TIME} {line}\n".encode()


def restarting(restarts: int = 4) -> Object:
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}}
    entry = {"name": "main", "restartCount": restarts, "state": waiting, "lastState": ENDED}
    return {"phase": "Running", "containerStatuses": [entry]}


async def job_of(client: AsyncClient, *pods: tuple[str, Object]) -> Model:
    made = await client.apply(MODEL)
    for name, status in pods:
        await add_pod(client, name, made.object, "edge0", **status)
    return made


async def test_a_crash_comes_with_the_last_lines_of_its_container(
    cluster: LocalApi, client: AsyncClient, run: Run
) -> None:
    last = [f"line {number}" for number in range(20)] + ["\x1b[2Jno such file: " + "x" * 9999]
    logs = Logs({("digits-a", True): last, ("digits-a", False): ["another run"]})
    cluster.serve_logs(logs)
    made = await job_of(client, ("digits-a", restarting()))
    (fault,) = (await client.state(made)).faults
    assert fault.log[0] == "line 16"
    assert fault.log[-1].startswith("[2Jno such file: xxx")
    assert len(fault.log) == MAX_LINES
    assert len(fault.log[-1]) <= MAX_LINE_CHARS
    page = (await run("describe", "model/small")).out.splitlines()
    place = next(number for number, line in enumerate(page) if line.startswith("- pod digits-a"))
    assert page[place + 1] == "    line 16"
    assert page[place + 5].startswith("    [2Jno such file: xxx")
    told = (await run("describe", "model/small", "-o", "json")).json
    assert told["logs"] == [
        {"about": told["waitsFor"][0], "worker": "digits-a", "lines": list(fault.log)}
    ]


async def test_a_run_that_was_the_last_one_is_read_itself(
    cluster: LocalApi, client: AsyncClient
) -> None:
    cluster.serve_logs(Logs({("digits-a", False): ["the end"], ("digits-a", True): ["before"]}))
    entry = {"name": "main", "restartCount": 2, "state": ENDED, "lastState": ENDED}
    made = await job_of(client, ("digits-a", {"phase": "Failed", "containerStatuses": [entry]}))
    assert [fault.log for fault in (await client.state(made)).faults] == [("the end",)]


async def test_a_failed_job_whose_condition_names_the_pod_has_its_log(
    cluster: LocalApi, client: AsyncClient
) -> None:
    cluster.serve_logs(Logs({("digits-a", False): ["the end"]}))
    entry = {"name": "main", "restartCount": 0, "state": ENDED}
    made = await job_of(client, ("digits-a", {"phase": "Failed", "containerStatuses": [entry]}))
    message = "pod digits-a on node edge0: Error: container main ended with exit code 3: Error"
    failed = condition("Failed", "True", "Error", message)
    await tell(client, made.ref, condition("Created", "True", "ModelCreated"), failed)
    assert [fault.log for fault in (await client.state(made)).faults] == [("the end",)]


async def test_a_log_that_cannot_be_read_is_absent(
    cluster: LocalApi, client: AsyncClient, run: Run
) -> None:
    cluster.serve_logs(Logs({}))
    made = await job_of(client, ("digits-a", restarting()))
    (fault,) = (await client.state(made)).faults
    assert (fault.reason, fault.log) == ("CrashLoopBackOff", ())
    done = await run("describe", "model/small", "-o", "json")
    assert (done.code, done.json["logs"]) == (0, [])


async def test_few_logs_are_read(cluster: LocalApi, client: AsyncClient) -> None:
    crashed = [(f"digits-{number}", restarting()) for number in range(9)]
    logs = Logs({(name, True): ["boom"] for name, _ in crashed})
    cluster.serve_logs(logs)
    made = await job_of(client, *crashed)
    faults = (await client.state(made)).faults
    assert [fault.log for fault in faults] == [("boom",)] * MAX_LOGS + [()] * 6
    assert len(logs.queries) == MAX_LOGS


async def test_no_log_is_read_of_a_container_that_waits(
    cluster: LocalApi, client: AsyncClient
) -> None:
    """Also where another container of its pod has crashed."""
    logs = Logs({(f"digits-{pod}", run): ["boom"] for pod in "abc" for run in (True, False)})
    cluster.serve_logs(logs)
    crashed = restarting()
    mixed = {**crashed, "containerStatuses": [PULLING, *crashed["containerStatuses"]]}
    waiting = {"phase": "Pending", "containerStatuses": [PULLING]}
    pods = (("digits-a", crashed), ("digits-b", waiting), ("digits-c", mixed))
    faults = (await client.state(await job_of(client, *pods))).faults
    assert [(fault.worker, fault.reason, fault.log) for fault in faults] == [
        ("digits-b", "ImagePullBackOff", ()),
        ("digits-c", "ImagePullBackOff", ()),
        ("digits-a", "CrashLoopBackOff", ("boom",)),
        ("digits-c", "CrashLoopBackOff", ("boom",)),
    ]
    queries = sorted((query.pod, query.container) for query in logs.queries)
    assert queries == [("digits-a", "main"), ("digits-c", "main")]
