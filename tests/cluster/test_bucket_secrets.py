"""Secrets as Sedna's documents have them, with the S3 server in annotations, on a real server."""

from typing import Final

from edgeai.api.resources import SECRETS
from edgeai.cli.api import Object, path_of
from edgeai.kube.client import KubeClient
from tests.cluster.controlplane import ControlPlane
from tests.cluster.samples import model, service
from tests.support.client import Client
from tests.support.manager import GlobalManager
from tests.support.waiting import eventually

# As in Sedna's documents, but for the keys. https://sedna.readthedocs.io
SECRET: Final = """
apiVersion: v1
kind: Secret
metadata:
  name: minio-keys
  annotations:
    s3-endpoint: minio.store:9000
    s3-usehttps: "0"
stringData:
  ACCESS_KEY_ID: somebody
  SECRET_ACCESS_KEY: something
"""


def applied(client: Client, namespace: str) -> Object:
    """A service whose big model is in a bucket, in Sedna's group."""
    for name in ("small", "big"):
        manifest = model(name, namespace, group="sedna.io")
        if name == "big":
            manifest["spec"] = {"url": "s3://models/big.onnx", "credentialName": "minio-keys"}
        client.create(manifest)
    return client.create({**service(namespace), "apiVersion": "sedna.io/v1alpha1"})


def wait_for_references(client: Client, job: Object, reason: str) -> str:
    """Returns: the message of the condition"""

    def check() -> str:
        status = client.get(path_of(job)).get("status") or {}
        conditions = {each["type"]: each for each in status.get("conditions") or ()}
        told = conditions.get("ResolvedRefs") or {}
        assert told.get("reason") == reason, f"conditions are {conditions}"
        return str(told["message"])

    return eventually(f"reason {reason}", check)


def wait_for_server(client: Client, namespace: str, url: str) -> Object:
    """Returns: the container that fetches the model"""
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/digits-deployment-cloud"

    def check() -> Object:
        deployment = client.find(path)
        assert deployment is not None, "there is no Deployment"
        fetch: Object = deployment["spec"]["template"]["spec"]["initContainers"][0]
        assert fetch.get("env") == [{"name": "S3_ENDPOINT_URL", "value": url}], f"it is {fetch}"
        return fetch

    return eventually(f"a worker with {url}", check)


def test_a_secret_as_sednas_documents_have_it_comes_changes_and_goes(
    crds: ControlPlane, manager: GlobalManager, namespace: str
) -> None:
    client = crds.client
    job = applied(client, namespace)
    message = wait_for_references(client, job, "SecretNotFound")
    assert f"Secret {namespace}/minio-keys" in message
    made = crds.kubectl("apply", "--namespace", namespace, "-f", "-", documents=SECRET)
    assert made.returncode == 0, made.stderr
    fetch = wait_for_server(client, namespace, "http://minio.store:9000")
    assert fetch["envFrom"] == [{"secretRef": {"name": "minio-keys"}}]
    wait_for_references(client, job, "Resolved")
    path = f"/api/v1/namespaces/{namespace}/secrets/minio-keys"
    client.patch(path, {"metadata": {"annotations": {"s3-usehttps": "1"}}})
    wait_for_server(client, namespace, "https://minio.store:9000")
    client.delete(path)
    wait_for_references(client, job, "SecretNotFound")
    assert wait_for_server(client, namespace, "https://minio.store:9000")


async def test_the_server_sends_no_key_to_a_client_that_asks_for_metadata(
    crds: ControlPlane, namespace: str
) -> None:
    made = crds.kubectl("create", "--namespace", namespace, "-f", "-", documents=SECRET)
    assert made.returncode == 0, made.stderr
    async with await KubeClient.from_kubeconfig(crds.kubeconfig) as client:
        listing = await client.list(SECRETS, namespace=namespace, metadata_only=True)
    found = {each["metadata"]["name"]: each for each in listing.items}
    assert found["minio-keys"]["metadata"]["annotations"]["s3-usehttps"] == "0"
    assert all("data" not in each for each in found.values())
