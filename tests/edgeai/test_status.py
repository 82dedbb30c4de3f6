"""The table of jobs, and what is not shown to anybody."""

import io
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

from rich.console import Console

from edgeai.api import ApiUnreachable
from edgeai.status import jobs_table

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def job(name: str, group: str) -> dict[str, Any]:
    metadata = {"namespace": "default", "name": name, "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {
        "apiVersion": f"{group}/v1alpha1",
        "kind": "JointInferenceService",
        "metadata": metadata,
    }


def shown(*jobs: dict[str, Any]) -> str:
    console = Console(file=io.StringIO(), width=200)
    console.print(jobs_table(list(jobs), NOW))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_jobs_of_one_name_are_told_apart_by_their_kind_and_group() -> None:
    text = shown(job("a", "edgeai.io"), job("a", "sedna.io"), job("b", "sedna.io"))
    assert "default/a (JointInferenceService.edgeai.io)" in text
    assert "default/a (JointInferenceService.sedna.io)" in text
    assert "default/b (" not in text


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


def test_what_keeps_a_job_from_going_on_is_told_until_it_has_succeeded() -> None:
    conditions = [{"type": "Training", "status": "False", "message": "no such image"}]
    waiting = job("a", "edgeai.io") | {"status": {"phase": "Pending", "conditions": conditions}}
    ended = job("a", "edgeai.io") | {"status": {"phase": "Succeeded", "conditions": conditions}}
    assert "no such image" in shown(waiting)
    assert "no such image" not in shown(ended)


def test_only_the_demo_loads_scikit_learn() -> None:
    """It is an extra, and takes longer to load than all else."""
    code = "import sys, edgeai.__main__; sys.exit('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_unreachable_api_is_named_without_the_token_in_its_path() -> None:
    error = str(ApiUnreachable("http://127.1.0.1:4711/t0ken?a=b", "refused"))
    assert "http://127.1.0.1:4711:" in error
    assert "t0ken" not in error
