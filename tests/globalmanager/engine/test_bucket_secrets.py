"""What the engine reads of the Secrets of users: their names and two annotations, nothing else."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from edgeai.api.resources import DEPLOYMENTS, NODES, SECRETS, Object, ObjectRef
from edgeai.kube.client import METADATA, METADATA_LIST, KubeClient
from globalmanager.cache.informer import Informer
from globalmanager.cache.informers import ALL, Informers
from globalmanager.kinds.edge.jointinferenceservice import KIND
from globalmanager.kinds.edge.model import KIND as MODEL_KIND
from globalmanager.manifests.crds import crd
from tests.globalmanager.cluster import CRDS, FAST, LocalApi, Manager, User, run_manager
from tests.globalmanager.kinds.edge.samples import EDGEAI, joint_inference_spec
from tests.globalmanager.scripted_api import serve_scripted
from tests.support.kubeconfig import write_kubeconfig
from tests.support.tasks import beside
from tests.support.waiting import async_eventually

MODELS: Final = MODEL_KIND.definition.resources[0]
PRIVATE: Final = "c2VjcmV0"
REF: Final = ObjectRef(SECRETS, "default", "keys")


def secret(**annotations: str) -> Object:
    """As `kubectl apply` writes it, with the keys in an annotation, too."""
    applied = {"kubectl.kubernetes.io/last-applied-configuration": PRIVATE}
    given = {f"s3-{key}": value for key, value in annotations.items()}
    metadata = {"name": "keys", "namespace": "default", "annotations": {**applied, **given}}
    return {"metadata": metadata, "data": {"SECRET_ACCESS_KEY": PRIVATE}}


@pytest.fixture
async def service(bare_cluster: LocalApi, user: User) -> AsyncIterator[Manager]:
    """The engine, and a service whose big model is in a bucket. Its Secret is not there yet."""
    await user.create(CRDS, crd(KIND, EDGEAI))
    await user.create(CRDS, crd(MODEL_KIND, MODELS))
    await user.create(NODES, {"metadata": {"name": "edge0"}})
    specs: dict[str, Any] = {"small": {"url": "/models/small.onnx"}}
    specs["big"] = {"url": "s3://models/big.onnx", "credentialName": "keys"}
    for name, spec in specs.items():
        metadata = {"name": name, "namespace": "default"}
        await user.create(MODELS, {"metadata": metadata, "spec": spec})
    metadata = {"name": "digits", "namespace": "default"}
    await user.create(EDGEAI, {"metadata": metadata, "spec": joint_inference_spec()})
    async with run_manager(bare_cluster.kubeconfig, kinds=(KIND, MODEL_KIND)) as manager:
        yield manager


async def wait_for_reason(user: User, reason: str) -> None:
    async def check() -> bool:
        found = await user.get(EDGEAI, "digits")
        conditions = ((found or {}).get("status") or {}).get("conditions") or ()
        reasons = [each["reason"] for each in conditions if each["type"] == "ResolvedRefs"]
        assert reasons == [reason], f"conditions are {conditions}"
        return True

    await async_eventually(f"reason {reason}", check)


async def wait_for_server(user: User, url: str) -> None:
    async def check() -> bool:
        deployment = await user.get(DEPLOYMENTS, "digits-deployment-cloud")
        assert deployment is not None, "there is no Deployment"
        (fetch,) = deployment["spec"]["template"]["spec"]["initContainers"]
        assert fetch.get("env") == [{"name": "S3_ENDPOINT_URL", "value": url}], f"{fetch}"
        return True

    await async_eventually(f"workers with {url}", check)


async def test_a_secret_that_comes_changes_and_goes(service: Manager, user: User) -> None:
    await wait_for_reason(user, "SecretNotFound")
    await user.create(SECRETS, secret(endpoint="minio:9000", usehttps="0"))
    await wait_for_server(user, "http://minio:9000")
    await wait_for_reason(user, "Resolved")
    await user.client.merge_patch(REF, {"metadata": {"annotations": {"s3-usehttps": "1"}}})
    await wait_for_server(user, "https://minio:9000")
    await user.delete(SECRETS, "keys")
    await wait_for_reason(user, "SecretNotFound")
    assert await user.get(DEPLOYMENTS, "digits-deployment-cloud") is not None


def informer_of_secrets(kube: KubeClient) -> Informer:
    informers = Informers(
        kube,
        namespace="",
        owners=(),
        settings=FAST,
    )
    return informers.get(SECRETS, ALL)


async def test_the_lists_and_watches_of_secrets_ask_for_metadata_alone(tmp_path: Path) -> None:
    async with serve_scripted() as api:
        api.lists = [api.listing(version=1)]
        api.watches = [api.hang()]
        kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", api.url)
        async with (
            await KubeClient.from_kubeconfig(kubeconfig) as client,
            beside(informer_of_secrets(client).run(), "informer"),
        ):
            await api.wait_for("watch", 1)
        asked = [request.headers["Accept"] for request in api.seen]
    assert asked == [METADATA_LIST, METADATA]


async def test_the_keys_of_a_secret_reach_neither_the_wire_nor_the_store(
    kube: KubeClient, user: User
) -> None:
    await user.create(SECRETS, secret(endpoint="minio:9000"))
    listing = await kube.list(SECRETS, namespace="default", metadata_only=True)
    (listed,) = (each for each in listing.items if each["metadata"]["name"] == "keys")
    assert "data" not in listed
    informer = informer_of_secrets(kube)
    async with beside(informer.run(), "informer"):
        for given in ("first", "second"):
            patch = {"metadata": {"annotations": {"s3-endpoint": given}}}
            await user.client.merge_patch(REF, patch)

            def check(expected: str = given) -> bool:
                known = informer.store.get(REF)
                assert known is not None
                assert known["metadata"]["annotations"] == {"s3-endpoint": expected}
                assert PRIVATE not in str(known)
                return True

            await async_eventually("the annotation", check)
