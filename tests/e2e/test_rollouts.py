"""A closed loop on real nodes, one of which reaches the edge port of the GlobalManager alone.

New versions of the model come through the relay, from a Service of the namespace.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from edgeai.cli.api import Object, path_of
from edgeai.cli.system import EDGE_PORT
from edgeai.demo import digits_source
from edgeai.demo.closed_loop import classifier, data
from edgeai.demo.closed_loop.data import Files
from edgeai.demo.closed_loop.manifests import Placement, objects
from edgeai.demo.closed_loop.story import LABELS
from edgeai.demo.manifests import IN_IMAGE
from tests.e2e.containers import IMAGE, put_on_nodes
from tests.support.cluster import CLOUD, EDGES, Cluster
from tests.support.waiting import eventually

pytestmark = pytest.mark.timeout(400, func_only=True)
DIRECTORY: Final = "/data/closed-loop"
PORT: Final = 8000
SERVER: Final = "models"
NAMESPACE: Final = "loop"
PATIENCE_S: Final = 120.0


class Loop:
    """The service of the example, and the Model whose versions it gets in waves."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self._client, self._files = cluster.client, Files(directory / "files")
        data.write(self._files.directory)
        classifier.train(self._files.model(2), digits_source.load())
        data.write_broken(self._files)
        put_on_nodes(cluster, self._files.directory, DIRECTORY)
        python, checkout = IN_IMAGE
        placement = Placement(
            files=Path(DIRECTORY),
            python=python,
            checkout=checkout,
            image=IMAGE,
            namespace=NAMESPACE,
            cloud_node=EDGES[0],  # where a LocalController counts the hard examples
            **self._source(1),
        )
        self._objects = [*server(python), *objects(placement)]
        self.model, _, self.dataset, self.service = self._objects[-4:]

    def create(self) -> None:
        for node in EDGES:
            self._client.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": LABELS}})
        for object_ in self._objects:
            self._client.create(object_)

    def delete(self) -> None:
        for object_ in reversed(self._objects):
            self._client.delete(path_of(object_))

    def publish(self, version: int) -> None:
        self._client.patch(path_of(self.model), {"spec": self._source(version)})

    def status(self, object_: Object) -> dict[str, Any]:
        return dict(self._client.get(path_of(object_)).get("status") or {})

    def wait_for(self, phase: str, version: int) -> str:
        """Returns: message of the rollout"""
        digest = self._source(version)["sha256"]

        def check() -> str:
            rollout = self.status(self.service).get("rollout") or {}
            present = (rollout.get("version") or {}).get("sha256"), rollout.get("phase")
            assert present == (digest, phase), f"{self.status(self.service)}"
            return f": {rollout.get('message', '')}"

        return eventually(f"{phase} of version {version}", check, timeout_s=PATIENCE_S)

    def wait_for_answers(self, part: str) -> None:
        """Until every edge answers with the version in this part of the rollout's state."""

        def check() -> bool:
            status = self.status(self.service)
            number = ((status.get("rollout") or {}).get(part) or {}).get("number")
            versions = (status.get("fleet") or {}).get("versions")
            assert versions == [{"version": number, "nodes": len(EDGES)}], f"{status}"
            return True

        eventually("one version on every edge", check, timeout_s=PATIENCE_S)

    def _source(self, version: int) -> dict[str, str]:
        file = self._files.model(version)
        url = f"http://{SERVER}.{NAMESPACE}.svc:{PORT}/{file.name}"
        return {"url": url, "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}


def server(python: Path) -> list[Object]:
    """A Service of the cluster with the files of all models."""
    container = {
        "name": SERVER,
        "image": IMAGE,
        "command": [str(python), "-m", "http.server", str(PORT), "--directory", "/models"],
        "volumeMounts": [{"name": "models", "mountPath": "/models", "readOnly": True}],
    }
    volume = {"name": "models", "hostPath": {"path": f"{DIRECTORY}/models"}}
    pod = {"nodeName": CLOUD, "containers": [container], "volumes": [volume]}
    metadata = {"name": SERVER, "namespace": NAMESPACE, "labels": {"app": SERVER}}
    service = {"selector": {"app": SERVER}, "ports": [{"port": PORT}]}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod},
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": service},
    ]


@pytest.fixture
def loop(installed: Cluster, tmp_path: Path) -> Iterator[Loop]:
    made = Loop(installed, tmp_path)
    # The cloud must reach the cloud worker, which is on the other edge.
    with installed.isolated(EDGES[1], edge_port=EDGE_PORT):
        made.create()
        try:
            yield made
        finally:
            made.delete()


def test_a_better_model_goes_out_in_waves_and_a_broken_one_is_taken_back(loop: Loop) -> None:
    loop.wait_for("Complete", 1)
    loop.wait_for_answers("version")
    loop.publish(2)
    loop.wait_for("Complete", 2)
    loop.wait_for_answers("version")
    loop.publish(3)
    assert "hard is 1 of" in loop.wait_for("RolledBack", 3)
    loop.wait_for_answers("previous")

    def kept() -> int:
        count = loop.status(loop.dataset).get("numberOfSamples") or 0
        assert count, f"{loop.status(loop.dataset)}"
        return int(count)

    eventually("hard examples in the Dataset", kept, timeout_s=PATIENCE_S)
