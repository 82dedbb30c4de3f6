"""Secrets with the keys of a bucket: what Sedna's users write into them reaches the workers, and a
Secret that is missing or wrong is named.
"""

from typing import Any

import pytest

from globalmanager.kinds.shared import storage
from tests.globalmanager.kinds.edge.samples import federated_job, small_service
from tests.support.world import World

MINIO = {"s3_endpoint": "minio.store:9000", "s3_usehttps": "0"}
THROUGH_A_BUCKET = {"transmitter": {"s3": {"aggDataPath": "s3://b/w", "credentialName": "keys"}}}


def service() -> World:
    """A service that fetches its big model from a bucket."""
    return small_service().model("big", "s3://models/big.pb", credentialName="keys")


def federation() -> World:
    """A federation that exchanges weights through a bucket, and keeps data and result there."""
    world = federated_job(1, **THROUGH_A_BUCKET)
    world.model("small", "s3://models/small.npz", credentialName="keys")
    world.dataset("data0", "edge0", "s3://data/0.csv")
    world.other("Dataset", "data0")["spec"]["credentialName"] = "keys"
    return world


def fetching(world: World) -> dict[str, Any]:
    """The init container of the cloud worker."""
    deployment = world.child("Deployment", "digits-deployment-cloud")
    fetch: dict[str, Any] = deployment["spec"]["template"]["spec"]["initContainers"][0]
    return fetch


def env(world: World, pod: str) -> dict[str, Any]:
    (container,) = world.child("Pod", pod)["spec"]["containers"]
    return {entry["name"]: entry for entry in container["env"]}


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        (MINIO, "http://minio.store:9000"),
        ({"s3_endpoint": "s3.amazonaws.com", "s3_usehttps": "1"}, "https://s3.amazonaws.com"),
        ({"s3_endpoint": "s3.amazonaws.com"}, "https://s3.amazonaws.com"),
        ({"s3_endpoint": "http://minio:9000"}, "http://minio:9000"),
        ({"s3_endpoint": "[::1]:9000"}, "https://[::1]:9000"),
    ],
)
def test_the_server_in_the_annotations_is_that_of_sedna(
    annotations: dict[str, str], expected: str
) -> None:
    """Source: Sedna v0.7, globalmanager/runtime/secret_injector.go"""
    world = service().secret("keys", **annotations).settle()
    assert fetching(world)["env"] == [{"name": "S3_ENDPOINT_URL", "value": expected}]
    assert fetching(world)["envFrom"] == [{"secretRef": {"name": "keys"}}]


def test_without_annotations_the_server_is_a_key_of_the_secret() -> None:
    world = service().secret("keys", s3_usehttps="0").settle()
    assert "env" not in fetching(world)
    given = env(federation().secret("keys").settle(), "digits-train-0")
    assert given["S3_ENDPOINT_URL"]["valueFrom"]["secretKeyRef"]["name"] == "keys"


def test_workers_of_a_federation_get_the_server_in_the_annotations() -> None:
    world = federation().secret("keys", **MINIO).settle()
    for pod in ("digits-aggregation", "digits-train-0"):
        assert env(world, pod)["S3_ENDPOINT_URL"]["value"] == "http://minio.store:9000"
        assert env(world, pod)["ACCESS_KEY_ID"]["valueFrom"]["secretKeyRef"]["name"] == "keys"
    (fetch,) = world.child("Pod", "digits-train-0")["spec"]["initContainers"]
    assert fetch["env"] == [{"name": "S3_ENDPOINT_URL", "value": "http://minio.store:9000"}]


@pytest.mark.parametrize("world", [service(), federation()], ids=["service", "federation"])
def test_a_job_waits_for_a_missing_secret_by_name_and_goes_on(world: World) -> None:
    resolved = world.settle().condition("ResolvedRefs")
    assert (resolved["status"], resolved["reason"]) == ("False", "SecretNotFound")
    assert "Secret default/keys" in resolved["message"]
    assert "credentialName" in resolved["message"]
    assert not world.children
    world.secret("keys", **MINIO).settle()
    assert world.condition("ResolvedRefs")["status"] == "True"
    assert world.children


@pytest.mark.parametrize("world", [service(), federation()], ids=["service", "federation"])
def test_workers_stay_when_their_secret_is_deleted(world: World) -> None:
    world.secret("keys", **MINIO).settle()
    made = dict(world.children)
    world.without("Secret", "keys").settle()
    assert world.condition("ResolvedRefs")["reason"] == "SecretNotFound"
    assert world.children == made


def test_another_server_in_the_annotations_reaches_the_workers() -> None:
    world = service().secret("keys", **MINIO).settle()
    world.secret("keys", s3_endpoint="other.store").settle()
    assert fetching(world)["env"][0]["value"] == "https://other.store"


@pytest.mark.parametrize(
    "given",
    ["ftp://minio", "a host", "https://", "http://user@minio", "m" * 300, "minio:9000/path"],
)
def test_an_annotation_that_names_no_server_is_told(given: str) -> None:
    world = service().secret("keys", s3_endpoint=given).settle()
    resolved = world.condition("ResolvedRefs")
    assert resolved["reason"] == "SecretInvalid"
    assert "metadata.annotations.s3-endpoint" in resolved["message"]
    assert len(resolved["message"]) < 400
    assert not world.children


def test_a_credential_of_a_file_on_the_node_is_not_looked_for() -> None:
    world = small_service().model("big", "/models/big.pb", credentialName="keys").settle()
    assert world.condition("ResolvedRefs")["status"] == "True"


@pytest.mark.parametrize("annotations", [None, {}, {"s3-endpoint": ""}])
def test_a_secret_without_the_annotation_names_no_server(annotations: Any) -> None:
    assert storage.endpoint({"metadata": {"name": "keys", "annotations": annotations}}) == ""
