"""JointInferenceServices on a real control plane, whose controllers make and collect the pods."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from edgeai.cli.api import path_of
from tests.cluster.kubelet import set_ready
from tests.cluster.samples import model, service
from tests.support.client import Client
from tests.support.inference_rules import PODS, InferenceRules, InferenceService, ManagerDown
from tests.support.manager import GlobalManager

# The garbage collector looks for new types twice a minute.
SETTLE_S: Final = 75.0


class Service(InferenceService):
    def __init__(self, client: Client, name: str, namespace: str) -> None:
        self._client = client
        self.models = {role: model(f"{name}-{role}", namespace) for role in PODS}
        used = {role: {"model": {"name": f"{name}-{role}"}} for role in PODS}
        cloud = {**used["cloud"], "nodeName": "cloud0"}
        manifest = service(namespace, name=name, edge=used["edge"], cloud=cloud)
        super().__init__(client, client.create, manifest, timeout_s=SETTLE_S)

    def apply(self) -> None:
        for each in self.models.values():
            self._client.create(each)
        self.create()
        self.wait_for("phase", "Running")

    def set_ready(self, role: str, *, ready: bool) -> None:
        (pod,) = self.made()[PODS[role]]
        set_ready(self._client, path_of(pod), ready=ready)


@pytest.fixture(name="service")
def running_service(
    client: Client, manager: GlobalManager, namespace: str, kubelet: None
) -> Service:
    made = Service(client, "digits", namespace)
    made.apply()
    return made


@pytest.fixture
def neighbour(client: Client, namespace: str, service: Service) -> Service:
    made = Service(client, "neighbour", namespace)
    made.apply()
    return made


@pytest.fixture
def manager_down(manager: GlobalManager) -> ManagerDown:
    @contextmanager
    def down() -> Iterator[None]:
        manager.stop()
        try:
            yield
        finally:
            manager.start()

    return down


class TestOnARealControlPlane(InferenceRules):
    pass
