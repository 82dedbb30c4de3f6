"""Two rounds of incremental learning with real containers, after docs/install.md."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from common.version import VERSION
from edgeai.cli.api import Object
from tests.e2e.training import ROOT
from tests.support.cluster import Cluster
from tests.support.waiting import eventually
from tests.system import learning_worker

pytestmark = pytest.mark.timeout(420, func_only=True)
NODE: Final = "edge0"
NAME: Final = "mean"
PROGRAM: Final = Path(learning_worker.__file__).read_text()
ROUND_S: Final = 180.0


def template(role: str) -> Object:
    container = {
        "name": role,
        "image": f"edgeai/worker:{VERSION}",
        "command": ["python3", "-u", "-c", PROGRAM, role],
        "securityContext": {"runAsUser": 0},  # the directories of the node belong to root
    }
    spec = {"nodeName": NODE, "containers": [container], "terminationGracePeriodSeconds": 1}
    return {"spec": spec}


def learning_spec() -> Object:
    trained = {"operator": ">=", "threshold": 8, "metric": "num_of_samples"}
    better = {"operator": ">", "threshold": 0.1, "metric": "precision_delta"}
    return {
        "initialModel": {"name": NAME},
        "dataset": {"name": NAME, "trainProb": 0.8},
        "trainSpec": {"template": template("train"), "trigger": {"condition": trained}},
        "evalSpec": {"template": template("eval")},
        "deploySpec": {
            "model": {"name": NAME, "hotUpdate": True, "pollPeriodSeconds": 1},
            "template": template("inference"),
            "trigger": {"condition": better},
        },
        "outputDir": "/data/learning/output",
    }


@pytest.fixture
def job(installed: Cluster) -> Iterator[str]:
    """Path of the job in the API."""
    run = installed.nodes[NODE].machine.run
    run("sh", "-c", "mkdir -p /data/learning && touch /data/learning/lines.txt")
    run("sh", "-c", "echo '[0, 0]' > /data/learning/first.json")
    specs: dict[str, Any] = {
        "models": ("Model", {"url": "/data/learning/first.json"}),
        "datasets": ("Dataset", {"url": "/data/learning/lines.txt", "nodeName": NODE}),
        "incrementallearningjobs": ("IncrementalLearningJob", learning_spec()),
    }
    for plural, (kind, spec) in specs.items():
        head = {"apiVersion": "edgeai.io/v1alpha1", "kind": kind, "metadata": {"name": NAME}}
        installed.client.request("POST", f"{ROOT}/{plural}", {**head, "spec": spec})
    yield f"{ROOT}/incrementallearningjobs/{NAME}"
    for plural in reversed(specs):
        installed.client.delete(f"{ROOT}/{plural}/{NAME}")


def test_two_rounds_reach_the_same_pod(installed: Cluster, job: str) -> None:
    for round_, number in ((1, 10), (2, 40)):
        lines = f"for i in 1 2 3 4 5 6 7 8 9 10; do echo {number} >> /data/learning/lines.txt; done"
        installed.nodes[NODE].machine.run("sh", "-c", lines)
        # An edit makes the node count at once.
        format_ = "txt" if round_ == 1 else ""
        installed.client.patch(f"{ROOT}/datasets/{NAME}", {"spec": {"format": format_}})

        def check(round_: int = round_) -> bool:
            status = installed.client.get(job).get("status", {})
            last = status.get("last", {})
            assert (last.get("round"), last.get("reason")) == (round_, "Deployed"), f"{status}"
            return True

        eventually(f"round {round_} is deployed", check, timeout_s=ROUND_S)
    status = installed.client.get(job)["status"]
    assert status["workers"][f"{NAME}-inference"]["details"]["modelVersion"] == "2"
    model = installed.nodes[NODE].machine.run("cat", status["deployed"]["url"])
    assert model.strip() == "[400.0, 16]"
