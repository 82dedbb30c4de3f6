"""Worker secrets are in Secrets alone, one for each worker, which no other worker's node reads.

The ClusterRole `view` reads no Secret. The Node authorizer lets a node read the Secrets that the
pods on it refer to.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from edgeai.api.resources import PODS, SECRETS
from globalmanager.kinds.shared.secrets import worker_secret
from tests.globalmanager.kinds.edge.samples import federated_job, secrets_of, small_service
from tests.globalmanager.kinds.elastic.world import EXAMPLE, ElasticWorld
from tests.support.world import SETTINGS, World, from_yaml

ROLES = ("edge", "job", "train-0", "train-1")
WORLDS: list[tuple[str, Callable[[], World], int]] = [
    ("JointInferenceService", small_service, 1),
    ("FederatedLearningJob", federated_job, 3),
    ("TrainingJob", lambda: ElasticWorld(from_yaml(EXAMPLE)), 0),
]


@pytest.mark.parametrize(
    ("make", "number"), [row[1:] for row in WORLDS], ids=[row[0] for row in WORLDS]
)
def test_no_object_but_a_secret_has_a_secret(make: Callable[[], World], number: int) -> None:
    world = make().settle()
    derived = {worker_secret(SETTINGS.root_key, world.observed().uid, role) for role in ROLES}
    stored = {*secrets_of(world).values()}
    assert len(stored & derived) == number
    open_to_viewers = json.dumps(
        [child for ref, child in world.children.items() if ref.type != SECRETS]
    )
    assert [each for each in stored | derived if each in open_to_viewers] == []


def secret_names(value: Any) -> Iterator[str]:
    """The Secrets that a pod's spec refers to, by environment variables and volumes."""
    if isinstance(value, list):
        value = dict(enumerate(value))
    if isinstance(value, dict):
        reference = value.get("secretKeyRef") or value.get("secret") or {}
        yield from filter(None, (reference.get("name"), reference.get("secretName")))
        for inner in value.values():
            yield from secret_names(inner)


def secrets_of_pods(world: World) -> dict[str, set[str]]:
    """Pod -> names of the Secrets that its node may read."""
    pods = ((ref.name, pod) for ref, pod in world.children.items() if ref.type == PODS)
    return {name: {*secret_names(pod["spec"])} for name, pod in pods}


def test_each_worker_of_a_federation_has_a_secret_that_no_other_worker_mounts() -> None:
    world = federated_job(3).settle()
    assert secrets_of_pods(world) == {
        "digits-aggregation": {"digits-aggregation"},
        "digits-train-0": {"digits-train-0"},
        "digits-train-1": {"digits-train-1"},
        "digits-train-2": {"digits-train-2"},
    }
    keys = {ref.name: {*each["data"]} for ref, each in world.children.items() if "data" in each}
    trainers = {f"digits-train-{n}": {"WORKER_SECRET", "PARTICIPANT_SECRET"} for n in range(3)}
    assert keys == {"digits-aggregation": {"JOB_SECRET", "participants.json"}, **trainers}


def test_no_two_secrets_of_a_federation_have_a_value_in_common() -> None:
    world = federated_job(3).settle()
    values = [value for each in world.children.values() for value in each.get("data", {}).values()]
    assert len(values) == len({*values}) == 8


def test_another_trainer_gets_a_secret_of_its_own() -> None:
    world = federated_job(1).settle()
    before = dict(world.children)
    world.dataset("data1", "edge1").nodes("edge1").change(federated_job(2).object["spec"]).settle()
    secrets = {ref: each for ref, each in world.children.items() if ref.type == SECRETS}
    changed = {ref.name for ref, each in secrets.items() if each != before.get(ref)}
    assert changed == {"digits-train-1", "digits-aggregation"}  # the latter: who takes part


def test_the_secret_of_a_trainer_goes_with_the_trainer() -> None:
    world = federated_job(2).settle().change(federated_job(1).object["spec"]).settle()
    assert "Secret/digits-train-1" not in world.names()
    assert "Secret/digits-train-0" in world.names()
