"""FederatedLearningJob: which specs are refused."""

from typing import Any

import pytest

from tests.globalmanager.kinds.edge.federatedlearningjob.test_plan import pod_names
from tests.globalmanager.kinds.edge.samples import federated_job


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"trainingWorkers": []}, "spec.trainingWorkers"),
        ({"transmitter": {}}, "spec.transmitter: has neither ws nor s3"),
        ({"transmitter": {"s3": {}}}, "spec.transmitter.s3.aggDataPath: is missing"),
        (
            {"transmitter": {"s3": {"aggDataPath": "not a url"}}},
            "spec.transmitter.s3.aggDataPath: 'not a url' is not in a bucket",
        ),
        (
            {"transmitter": {"s3": {"aggDataPath": "/data/weights"}}},
            "spec.transmitter.s3.aggDataPath: '/data/weights' is not in a bucket",
        ),
        (
            {"transmitter": {"s3": {"aggDataPath": "s3://bucket"}}},
            "spec.transmitter.s3.aggDataPath",
        ),
        ({"pretrainedModel": {"name": ""}}, "spec.pretrainedModel.name"),
    ],
)
def test_a_spec_that_cannot_run_is_refused_by_field(fields: Any, message: str) -> None:
    world = federated_job(**fields)
    world.settle()
    accepted = world.condition("Accepted")
    assert (accepted["status"], accepted["reason"]) == ("False", "InvalidSpec")
    assert accepted["message"].startswith(message)
    assert world.status["phase"] == "Invalid"
    assert pod_names(world) == []
