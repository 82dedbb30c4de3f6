"""The commands by which docs/upgrade.md goes back to the version before, on a real API server."""

import copy
import re
import shlex
from collections.abc import Iterator
from typing import Final

import pytest

from edgeai.cli.api import Object, path_of
from tests.cluster.client import Client
from tests.cluster.conftest import CHECKOUT
from tests.cluster.controlplane import ControlPlane
from tests.cluster.kustomize import DEPLOY, rendered
from tests.support.waiting import eventually

PAGE: Final = CHECKOUT / "docs" / "upgrade.md"
OVERLAY: Final = DEPLOY / "overlays" / "serviceaccount"
UNDO: Final = re.compile(r"^kubectl (?P<arguments>.* rollout undo .*)$", re.MULTILINE)


@pytest.fixture
def workloads(crds: ControlPlane, system_namespace: str) -> Iterator[list[Object]]:
    """What runs pods, as deploy/ has it."""
    chosen = [each for each in rendered(OVERLAY) if each["kind"] in ("Deployment", "DaemonSet")]
    yield chosen
    for document in chosen:
        crds.client.delete(path_of(document))


def apply(control_plane: ControlPlane, documents: list[Object]) -> None:
    """As one version of edgeai; returns once the controllers have recorded it."""
    applied = control_plane.kubectl("apply", "-f", "-", documents=documents)
    assert applied.returncode == 0, applied.stderr

    def check() -> bool:
        found = (control_plane.client.get(path_of(document)) for document in documents)
        unseen = [
            each["kind"]
            for each in found
            if each["status"].get("observedGeneration") != each["metadata"]["generation"]
        ]
        assert not unseen, f"{unseen} not observed"
        return True

    eventually("controllers to see the change", check)


def images(client: Client, documents: list[Object]) -> set[str]:
    found = (client.get(path_of(document)) for document in documents)
    return {each["spec"]["template"]["spec"]["containers"][0]["image"] for each in found}


def test_undo_brings_back_the_images_of_before(crds: ControlPlane, workloads: list[Object]) -> None:
    apply(crds, workloads)
    before = images(crds.client, workloads)
    newer = copy.deepcopy(workloads)
    for document in newer:
        document["spec"]["template"]["spec"]["containers"][0]["image"] += "-next"
    apply(crds, newer)
    assert images(crds.client, workloads) == {f"{image}-next" for image in before}
    commands = [shlex.split(match["arguments"]) for match in UNDO.finditer(PAGE.read_text())]
    assert len(commands) == len(workloads) == 2
    for command in commands:
        undone = crds.kubectl(*command)
        assert undone.returncode == 0, undone.stderr
    assert images(crds.client, workloads) == before
