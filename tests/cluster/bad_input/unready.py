"""A GlobalManager that is not ready yet, and the small job with which it is tried."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

from edgeai.cli.api import Object
from tests.cluster.controlplane import ControlPlane
from tests.cluster.edge import Edge
from tests.cluster.samples import create_models, service
from tests.support.manager import GlobalManager
from tests.support.waiting import eventually

USER: Final = "gm"
REPLICA: Final = "gm"
FLAGS: Final = (
    *("--watch-s", "2", "--replica-name", REPLICA),
    *("--lease-duration-s", "6", "--lease-renew-deadline-s", "4", "--lease-retry-s", "0.5"),
)

Launch = Callable[..., "UnreadyManager"]


class UnreadyManager:
    """A GlobalManager that is not ready yet, and what it says."""

    def __init__(self, kubeconfig: Path, directory: Path, flags: tuple[str, ...]) -> None:
        self._log = directory / "globalmanager.log"
        self.process = GlobalManager(
            kubeconfig=kubeconfig,
            directory=directory,
            flags=(*FLAGS, *flags),
        )
        self.process.launch()

    def stop(self) -> None:
        print(f"--- {self.process.logs()}")
        assert self.process.stop() == 0, self.process.logs()

    def log(self) -> list[Object]:
        return [json.loads(line) for line in self._log.read_text().splitlines()]

    def warnings(self, since: int = 0) -> list[str]:
        """Without those about replicas of other tests, which shared the cluster and were killed."""
        return [
            json.dumps(line)
            for line in self.log()[since:]
            if line["level"] != "info" and line.get("replica", REPLICA) == REPLICA
        ]

    def patches(self) -> float:
        """How many it has sent: of statuses, and of Events that come again."""
        sent = self.process.metric("edgeai_kubernetes_requests_total")
        return sum(count for labels, count in sent.items() if 'verb="patch"' in labels)

    def words(self) -> list[str]:
        """The reasons of /readyz."""
        return self.process.readyz()[1]

    def wait_for_reason(self, *words: str, ready: bool = False) -> str:
        """Of /readyz, with all these words in it."""

        def check() -> str:
            is_ready, reasons = self.process.readyz()
            found = [each for each in reasons if all(word in each for word in words)]
            assert is_ready is ready, f"ready {is_ready}, it says {reasons}"
            assert found, f"it says {reasons}"
            return found[0]

        return eventually(f"a reason with {words}", check)

    def wait_for_warning(self, *words: str, since: int = 0) -> None:
        def check() -> bool:
            found = self.warnings(since)
            is_told = any(all(word in each for word in words) for each in found)
            assert is_told, f"it warned of {found[-5:]}"
            return True

        eventually(f"a warning with {words}", check)

    def wait_for_no_reason(self, word: str) -> None:
        def check() -> bool:
            still = [each for each in self.words() if word in each]
            assert not still, f"it says {still}"
            return True

        eventually(f"no reason with {word}", check)

    def wait_until_well(self) -> None:
        """Ready, and nothing amiss."""

        def check() -> bool:
            is_ready, reasons = self.process.readyz()
            assert is_ready, f"not ready, it says {reasons}"
            assert not reasons, f"ready, but it says {reasons}"
            return True

        eventually("readiness", check)


def create_job(plane: ControlPlane, namespace: str, **changed: Any) -> Object:
    create_models(plane.client, namespace)
    return plane.client.create(service(namespace, **changed))


IMAGE: Final = "registry.test/other:2"
OTHER: Final = {"spec": {"containers": [{"name": "main", "image": IMAGE}]}}


def deployment_path(namespace: str) -> str:
    return f"/apis/apps/v1/namespaces/{namespace}/deployments/digits-deployment-cloud"


def wait_for_image(plane: ControlPlane, namespace: str) -> None:
    def check() -> bool:
        template = plane.client.get(deployment_path(namespace))["spec"]["template"]
        assert IMAGE in json.dumps(template), f"it is {template}"
        return True

    eventually("the other image", check)


def leave_what_nobody_wants(plane: ControlPlane, job: Object, *, namespace: str = "") -> Object:
    """As an earlier version might have made it for the job. Args: namespace: not the job's"""
    metadata = job["metadata"]
    owner = {key: job[key] for key in ("apiVersion", "kind")}
    owner |= {key: metadata[key] for key in ("name", "uid")}
    left = {
        "name": "digits-old",
        "namespace": namespace or metadata["namespace"],
        "labels": {
            "app.kubernetes.io/managed-by": "edgeai",
            "edgeai.io/uid": metadata["uid"],
        },
        "ownerReferences": [{**owner, "controller": True}],
    }
    spec = {"ports": [{"port": 80}]}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": left, "spec": spec}
    return plane.client.create(service)


def wait_for_deployment(plane: ControlPlane, namespace: str) -> None:
    eventually("a worker", lambda: plane.client.find(deployment_path(namespace)))


def untimed(line: str) -> str:
    return json.dumps({k: v for k, v in json.loads(line).items() if k != "timestamp"})


def connected_edge(manager: UnreadyManager, directory: Path) -> AbstractContextManager[Edge]:
    return Edge("edge0", port=manager.process.edge_port, directory=directory).running()
