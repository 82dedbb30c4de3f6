"""The table of jobs, and what is not shown to anybody."""

import io
import re
import socket
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from edgeai.cli.api import Api, ApiUnreachable
from edgeai.cli.environment import Environment
from edgeai.cli.status import jobs_table, nodes_table, scalers_table
from edgeai.localcluster.state import ClusterProcess

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def job(name: str, group: str) -> dict[str, Any]:
    metadata = {"namespace": "default", "name": name, "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {
        "apiVersion": f"{group}/v1alpha1",
        "kind": "JointInferenceService",
        "metadata": metadata,
    }


def shown(*jobs: dict[str, Any], width: int = 200) -> str:
    return printed(jobs_table(list(jobs), NOW), width)


def printed(table: Table, width: int) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(table, crop=False)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


METRICS = [{"key": f"metric-of-some-length-{n}", "value": "0.1234"} for n in range(6)]
CONDITION = {"type": "Training", "status": "False", "message": "a message of many words " * 9}
LONG_STATUS = {"phase": "Training", "rounds": 40, "metrics": METRICS, "conditions": [CONDITION]}
NAME = "digits-classifier-of-the-northern-plant"


def test_jobs_of_one_name_are_told_apart_by_their_kind_and_group() -> None:
    text = shown(job("a", "edgeai.io"), job("a", "sedna.io"), job("b", "sedna.io"))
    rows = [line.split()[:2] for line in text.splitlines()[2:]]
    assert rows == [["jis", "default/a"], ["ji", "default/a"], ["ji", "default/b"]]


def test_a_federated_job_is_shown_with_its_round_and_its_metrics() -> None:
    federated = job("digits", "edgeai.io") | {
        "kind": "FederatedLearningJob",
        "status": {
            "phase": "Training",
            "round": 7,
            "rounds": 40,
            "metrics": [{"key": "accuracy", "value": "0.91"}],
        },
    }
    assert "round 7/40, accuracy 0.91" in shown(federated)


def test_a_federated_job_of_sednas_library_is_shown_with_its_round_alone() -> None:
    status = {"phase": "Running", "round": 7}
    federated = job("digits", "sedna.io") | {"kind": "FederatedLearningJob", "status": status}
    assert "round 7 " in shown(federated)


def test_a_training_job_is_shown_by_its_last_condition_and_its_replicas() -> None:
    conditions = [
        {"type": "Created", "status": "True", "message": "PyTorchJob mnist is created."},
        {"type": "Restarting", "status": "True", "message": "PyTorchJob mnist is restarting."},
    ]
    statuses = {"Master": {"active": 1}, "Worker": {"active": 2, "failed": 1}, "PS": {}}
    status = {"conditions": conditions, "replicaStatuses": statuses}
    text = shown(job("mnist", "kubeflow.org") | {"kind": "PyTorchJob", "status": status})
    assert "Restarting" in text
    assert "Master 1 active, Worker 2 active, 1 failed, PS 0 active" in text
    assert "PyTorchJob mnist is restarting." in text


HISTORY = [
    {"type": "Created", "status": "True", "message": "the job is created."},
    {"type": "Scaling", "status": "False", "message": "the job is not scaling any more."},
    {"type": "Suspended", "status": "False", "message": "the job is resumed."},
]


@pytest.mark.parametrize(
    ("phase", "condition", "expected"),
    [
        ("Running", {"type": "Running", "status": "True", "message": "the job runs."}, None),
        ("Failed", {"type": "Failed", "status": "True", "message": "no image."}, "no image."),
        (
            "Running",
            {"type": "Stalled", "status": "True", "message": "a pod pends."},
            "a pod pends.",
        ),
        ("Running", {"type": "Stalled", "status": "False", "message": "a pod pended."}, None),
    ],
)
def test_what_a_training_job_has_left_behind_is_no_trouble(
    phase: str, condition: dict[str, str], expected: str | None
) -> None:
    status = {"phase": phase, "conditions": [*HISTORY, condition]}
    text = shown(job("mnist", "kai.alibabacloud.com") | {"kind": "TrainingJob", "status": status})
    messages = [each["message"] for each in (*HISTORY, condition)]
    assert [each for each in messages if each in text] == ([expected] if expected else [])


@pytest.mark.parametrize("width", [30, 80, 100])
def test_the_name_the_phase_and_the_age_of_a_job_are_never_cut(width: int) -> None:
    text = shown(job(NAME, "edgeai.io") | {"status": LONG_STATUS}, width=width)
    assert re.search(rf"default/{NAME} +Training .* 24h", text), text
    assert text.count("…") == 1, "only the reason, which is long, is shown in short"


def test_progress_folds_where_it_has_no_room() -> None:
    text = shown(job("digits", "edgeai.io") | {"status": LONG_STATUS}, width=80)
    assert max(map(len, text.splitlines())) <= 80
    assert all(f"{n} 0.1234" in text for n in range(5))


def test_a_long_name_of_a_node_is_never_cut() -> None:
    name = f"{NAME}.eu-central-1.compute.internal"
    node = {"name": name, "session": None, "connected": True, "since": None}
    table = nodes_table([node | {"tasksHeld": 1, "tasksDesired": 1}], NOW)
    assert re.search(rf"{name} +connected", printed(table, 80))


SINCE = "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ({"isEdge": False, "since": None, "tasksDesired": 1}, "none needed"),
        ({"isEdge": False, "since": SINCE, "tasksDesired": 0}, "no session"),
        ({"isEdge": True, "since": None, "tasksDesired": 0}, "no session"),
        ({"isEdge": True, "since": SINCE, "tasksDesired": None}, "no session"),
        # A GlobalManager of an earlier release has no isEdge.
        ({"since": None, "tasksDesired": 0}, "none needed"),
        ({"since": None, "tasksDesired": 1}, "no session"),
    ],
)
def test_a_node_of_the_cloud_needs_no_session_also_with_tasks(
    node: dict[str, Any], expected: str
) -> None:
    """A training job has a task for each node with a pod of its own."""
    row = {"name": "node-a", "session": None, "connected": False, "tasksHeld": None, **node}
    assert re.search(rf"node-a +{expected} ", printed(nodes_table([row], NOW), 80))


def test_what_keeps_a_job_from_going_on_is_told_until_it_has_succeeded() -> None:
    conditions = [{"type": "Training", "status": "False", "message": "no such image"}]
    waiting = job("a", "edgeai.io") | {"status": {"phase": "Pending", "conditions": conditions}}
    ended = job("a", "edgeai.io") | {"status": {"phase": "Succeeded", "conditions": conditions}}
    assert "no such image" in shown(waiting)
    assert "no such image" not in shown(ended)


def scaler(name: str, kind: str, spec: dict[str, Any], **status: Any) -> dict[str, Any]:
    made = job(name, "kai.alibabacloud.com") | {"kind": kind, "status": status}
    return made | {"spec": {"selector": {"name": "elastic"}, **spec}}


def test_scalers_are_shown_with_their_job_their_phase_and_why_they_failed() -> None:
    failed = scaler("out", "ScaleOut", {"toAdd": {"count": 2}}, phase="ScaleFailed", message="full")
    done = scaler("in", "ScaleIn", {"toDelete": {"count": 1}}, phase="ScaleSucceeded", message="ok")
    names = {"toDelete": {"podNames": ["a", "b", "c"]}}
    new = scaler("new", "ScaleIn", names, message="waits for TrainingJob elastic")
    wrong = scaler("wrong", "ScaleOut", {"toAdd": None, "selector": None})
    text = printed(scalers_table([failed, done, new, wrong], NOW), 200)
    assert re.search(r"default/out \(ScaleOut\) +elastic +\+2 +ScaleFailed +24h +full", text)
    assert re.search(r"default/in \(ScaleIn\) +elastic +-1 +ScaleSucceeded +24h *\n", text)
    assert re.search(r"default/new \(ScaleIn\) +elastic +-3 +- +24h +waits for Training", text)
    assert re.search(r"default/wrong \(ScaleOut\) +- +- +- +24h", text)


def status_of(url: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "edgeai", "status", "--url", url]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_global_manager_that_is_down_is_named_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
    done = status_of(url)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"edgeai: the GlobalManager does not answer at {url}: [Errno 111] Connection refused; "
        "check --url, which is its HTTP port, and whether the GlobalManager runs\n"
    )


def test_the_local_global_manager_that_is_down_is_looked_at_by_kubectl() -> None:
    path = Path("/state/kubeconfig")
    cluster = ClusterProcess(
        pid=1, start_ticks=1, api="", network="127.1", nodes={}, kubeconfig=path
    )
    remedy = Environment(path.parent, cluster, Api("http://127.1.0.1:1", "t")).remedy
    assert "kubectl --kubeconfig /state/kubeconfig --namespace edgeai-system get pods" in remedy
    assert "edgeai down" in remedy


def test_the_help_loads_nothing_that_only_some_commands_need() -> None:
    """Each of these takes a tenth of a second or more, and scikit-learn is an extra."""
    code = (
        "import atexit, sys, edgeai.cli.main\n"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
        "edgeai.cli.main.app(['--help'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "submit" in done.stdout
    slow = {"asyncio", "globalmanager", "http", "aiohttp", "rich", "sklearn", "yaml"}
    assert not slow.intersection(done.stderr.split())


def test_an_unreachable_api_is_named_without_the_token_in_its_path() -> None:
    error = str(ApiUnreachable("http://127.1.0.1:4711/t0ken?a=b", "refused"))
    assert "http://127.1.0.1:4711:" in error
    assert "t0ken" not in error


def test_no_cell_has_control_characters_or_markup() -> None:
    condition = {"type": "Training", "status": "False", "message": "x\x1b]0;owned\x07y\x9b2J"}
    metrics = [{"key": "[red]loss\x1b[2J", "value": "[link=http://evil.test]1[/link]"}]
    status = {"phase": "Training\x1b[0m", "metrics": metrics, "conditions": [condition]}
    text = shown(job("a", "edgeai.io") | {"status": status})
    assert not [each for each in text if each != "\n" and not each.isprintable()]
    assert "[red]loss[2J [link=http://evil.test]1[/link]" in text
    assert "x]0;ownedy2J" in text
