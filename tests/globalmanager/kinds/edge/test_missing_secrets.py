"""A Secret that goes before the kubelet needs it is named, from what the kubelet says of the pod.

See test_bucket_secrets for a Secret that was never there.
"""

from typing import Any, Final

from tests.globalmanager.kinds.edge.samples import federated_job, small_service

# As the kubelet writes it for `envFrom` of an init container.
WAITING: Final[dict[str, Any]] = {
    "phase": "Pending",
    "initContainerStatuses": [
        {
            "name": "storage-initializer",
            "state": {
                "waiting": {
                    "reason": "CreateContainerConfigError",
                    "message": 'secret "s3-key" not found',
                }
            },
        }
    ],
    "containerStatuses": [
        {"name": "main", "state": {"waiting": {"reason": "PodInitializing"}}},
    ],
}
EXPECTED: Final = 'container storage-initializer: secret "s3-key" not found'


def test_of_a_model() -> None:
    world = small_service().model("big", "s3://a/m.onnx", credentialName="s3-key").secret("s3-key")
    world.settle()
    world.pod("cloud", "cloud0", **WAITING).settle()
    told = world.condition("Running")
    assert told["reason"] == "CreateContainerConfigError"
    assert EXPECTED in told["message"]


def test_of_a_dataset() -> None:
    world = federated_job().settle().pods_become("Running", "digits-aggregation", "digits-train-1")
    state = {key: value for key, value in WAITING.items() if key != "phase"}
    world.pods_become("Pending", "digits-train-0", **state).settle()
    told = world.condition("Training")
    assert told["reason"] == "CreateContainerConfigError"
    assert EXPECTED in told["message"]
