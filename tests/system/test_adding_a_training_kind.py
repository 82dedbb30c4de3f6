"""docs/adding-a-training-kind.md is true: its two folders are kinds that run on the local cluster.

tests/cluster/test_training_kind.py shows the same on a real control plane.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from edgeai.cli import environment
from edgeai.cli.api import Object
from edgeai.cli.environment import Environment
from tests.docs.pages import Copy, copy_with
from tests.docs.training import Training
from tests.support.waiting import PATIENCE_S

PATIENT_S: Final = 2 * PATIENCE_S


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    return copy_with("adding-a-training-kind.md", tmp_path_factory.mktemp("copy"))


@pytest.fixture(scope="module")
def running(copy: Copy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """A local cluster whose GlobalManager has the two kinds."""

    def apply(started: Environment) -> None:
        for crd in copy.crds.values():
            started.api.apply(crd)

    state_dir = tmp_path_factory.mktemp("cluster") / "state"
    yield environment.up(state_dir, edges=(), pod_env=copy.environment, on_api=apply)
    environment.down(state_dir)


def test_the_manifests_follow_from_the_folders(copy: Copy) -> None:
    assert sorted(copy.crds) == ["edgeai.io_batchscales.yaml", "edgeai.io_batchtrains.yaml"]
    versions = copy.crds["edgeai.io_batchtrains.yaml"]["spec"]["versions"]
    assert [(each["name"], each["served"], each["storage"]) for each in versions] == [
        ("v1", True, True),
        ("v1alpha1", True, False),
    ]
    rights = rights_of(copy.rules)
    read = {"get", "list", "watch"}
    kept = {*read, "create", "update", "delete"}
    rbac = "rbac.authorization.k8s.io"
    # The kind trainingjob needs the rights to all types of the children too.
    assert rights_of(copy.new_rules()).keys() == {key for key in rights if "batch" in key[1]}
    expected = {
        ("edgeai.io", "batchscales"): {*read, "patch", "delete"},
        ("edgeai.io", "batchscales/status"): {"patch"},
        ("edgeai.io", "batchtrains"): {*read, "delete"},
        ("edgeai.io", "batchtrains/status"): {"patch"},
        ("edgeai.io", "batchtrains/finalizers"): {"update"},
        ("", "configmaps"): kept,
        ("", "serviceaccounts"): kept,
        (rbac, "roles"): kept,
        (rbac, "rolebindings"): kept - {"update"},
        ("", "pods"): {"get"},
        ("", "pods/exec"): {"create", "get"},
    }
    assert {key: rights[key] & verbs for key, verbs in expected.items()} == expected


def rights_of(rules: list[Object]) -> dict[tuple[str, str], set[str]]:
    """(group, resource) -> verbs"""
    rights: dict[tuple[str, str], set[str]] = defaultdict(set)
    for rule in rules:
        for group, resource in itertools.product(rule["apiGroups"], rule["resources"]):
            rights[group, resource].update(rule["verbs"])
    return rights


def test_job_lives_and_ends_as_the_page_says(
    copy: Copy, running: Environment, tmp_path: Path
) -> None:
    train = copy.manifest("train")
    for replica_type in ("launcher", "worker"):
        wait_for_end(train["spec"][replica_type], tmp_path)
    Training(
        running.api,
        running.api.create,
        train=train,
        scale=copy.manifest("scale"),
        succeed=lambda name: (tmp_path / name).touch(),
        timeout_s=PATIENT_S,
    ).live()


def wait_for_end(template: Object, directory: Path) -> None:
    """Each container ends once the directory has a file of its pod's name."""
    (container,) = template["spec"]["containers"]
    container["command"] = ["sh", "-c", f"until [ -e {directory}/$NAME ]; do sleep 0.2; done"]
    name = {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    container["env"] = [name]
