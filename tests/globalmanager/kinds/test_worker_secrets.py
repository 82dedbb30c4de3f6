"""Worker secrets are in Secrets alone, which the ClusterRole `view` cannot read."""

import json
from collections.abc import Callable

import pytest

from globalmanager.contract import SECRETS
from globalmanager.rules.secrets import worker_secret
from tests.globalmanager.builders import SETTINGS, World, from_yaml
from tests.globalmanager.kinds.elastic import EXAMPLE, ElasticWorld
from tests.globalmanager.kinds.samples import federated_job, secrets_of, small_service

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


def test_another_trainer_gets_a_secret_in_the_same_object() -> None:
    world = federated_job(1).settle()
    before = world.child("Secret", "digits-federation")["data"]
    world.dataset("data1", "edge1").nodes("edge1").change(federated_job(2).object["spec"]).settle()
    after = world.child("Secret", "digits-federation")["data"]
    assert after.keys() - before.keys() == {"train-1", "participant-1"}
    changed = {key for key, value in before.items() if after[key] != value}
    assert changed == {"participants.json"}
