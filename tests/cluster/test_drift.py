"""What others do to the children of a job, on a real API server: by kubectl, by a controller
that does it again, and by an admission webhook.
"""

import base64
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pytest

from edgeai.cli.api import ApiError, Object, path_of
from tests.cluster.controlplane import ControlPlane
from tests.cluster.test_joint_inference import Service
from tests.cluster.training import end, job_path, pytorch_job, wait_for_conditions
from tests.support.certificates import Authority
from tests.support.client import Client
from tests.support.inference_rules import ALL, EDGE_DEPLOYMENT, FRONT
from tests.support.jobs import Api
from tests.support.manager import GlobalManager
from tests.support.waiting import eventually

OVERRIDDEN: Final = "Overridden"
IMAGE: Final = "spec.template.spec.containers[0].image"
WEBHOOKS: Final = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
THEIRS: Final = "registry.test/theirs:1"
REPLICA_TYPE: Final = "training.kubeflow.org/replica-type"
IMAGE_OF_SERVICE: Final = "registry.test/small:1"


@pytest.fixture
def service(client: Client, manager: GlobalManager, namespace: str, kubelet: None) -> Service:
    made = Service(client, "digits", namespace)
    made.apply()
    return made


def edge_deployment(service: Service) -> Object:
    (found,) = service.made()[EDGE_DEPLOYMENT]
    return found


def image_of(deployment: Object) -> str:
    image: str = deployment["spec"]["template"]["spec"]["containers"][0]["image"]
    return image


def with_image(deployment: Object, image: str) -> Object:
    """The patch of the Deployment that changes nothing but the image."""
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    pod = {"containers": [{**container, "image": image}]}
    return {"spec": {"template": {"spec": pod}}}


# ---- by hand ------------------------------------------------------------------------------------


def test_what_kubectl_changes_is_put_back(
    service: Service, control_plane: ControlPlane, namespace: str
) -> None:
    """Each field that the service declares: image, environment, selector, ports."""
    assert service.condition(OVERRIDDEN) == {}
    before = {key: service.made()[key][0]["spec"] for key in (EDGE_DEPLOYMENT, FRONT)}
    other = json.dumps({"spec": {"selector": {"edgeai.io/role": "other"}}})
    for arguments in (
        ("set", "image", "deployment/digits-deployment-edge", f"main={THEIRS}"),
        ("set", "env", "deployment/digits-deployment-cloud", "NAMESPACE=theirs"),
        ("patch", "service", "digits-cloud", "--type=merge", "-p", other),
    ):
        done = control_plane.kubectl("--namespace", namespace, *arguments)
        assert done.returncode == 0, done.stderr

    def check() -> bool:
        for key, spec in before.items():
            assert service.made()[key][0]["spec"] == spec
        env = service.made()["Deployment/digits-deployment-cloud"][0]["spec"]["template"]["spec"]
        values = {one["name"]: one.get("value") for one in env["containers"][0]["env"]}
        assert values["NAMESPACE"] == namespace
        return True

    service.eventually("what the service declares", check)
    service.eventually("its Event", lambda: "Restored" in service.told())
    assert service.condition(OVERRIDDEN) == {}


# ---- by a controller that does it again ---------------------------------------------------------


class Rival:
    """Patches one object again whenever it is another than this controller wants, until stopped.

    Args: patch: the patch for an object as it is; None when the object is as wanted
    """

    def __init__(self, api: Api, path: str, patch: Callable[[Object], Object | None]) -> None:
        self._api, self._path, self._patch = api, path, patch
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rival", daemon=True)
        self.writes = 0
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(0.1):
            try:
                patch = self._patch(self._api.get(self._path))
                if patch is not None:
                    self._api.patch(self._path, patch)
                    self.writes += 1
            except (ApiError, OSError, HTTPException):
                continue  # next time


def their_image(deployment: Object) -> Object | None:
    return None if image_of(deployment) == THEIRS else with_image(deployment, THEIRS)


def their_selector(service: Object) -> Object | None:
    spec = {"selector": {REPLICA_TYPE: "theirs"}}
    return None if service["spec"]["selector"][REPLICA_TYPE] == "theirs" else {"spec": spec}


@pytest.fixture
def rival(service: Service) -> Iterator[Rival]:
    made = Rival(service.api, path_of(edge_deployment(service)), their_image)
    yield made
    made.stop()


def test_who_sets_a_field_again_and_again_is_told_of_and_left_alone(
    service: Service, rival: Rival
) -> None:
    """After two attempts. The rest of the service is healed as before."""
    service.wait_for_condition(OVERRIDDEN, "SetByOthers")
    message = service.condition(OVERRIDDEN)["message"]
    assert "Deployment digits-deployment-edge" in message
    assert IMAGE in message
    assert rival.writes == 3  # once of its own, and after each attempt
    before, generation = service.uids(), edge_deployment(service)["metadata"]["generation"]
    service.delete_made(FRONT)
    service.wait_for_new(before, FRONT)
    service.edit(cloudWorker={"name": "so that the manager looks again"})
    service.wait_for("observedGeneration", 2)
    assert edge_deployment(service)["metadata"]["generation"] == generation
    assert rival.writes == 3
    service.eventually("its Event", lambda: "Drift" in service.told())


def test_when_the_other_one_gives_in_the_condition_goes(service: Service, rival: Rival) -> None:
    service.wait_for_condition(OVERRIDDEN, "SetByOthers")
    rival.stop()
    found = edge_deployment(service)
    service.api.patch(path_of(found), with_image(found, IMAGE_OF_SERVICE))
    service.eventually("no such condition", lambda: not service.condition(OVERRIDDEN))


def test_a_training_job_tells_who_sets_a_field_of_its_service_again_and_lets_it(
    client: Client, manager: GlobalManager, namespace: str, kubelet: None
) -> None:
    """When the other one gives in, the Service is as declared again, and the condition goes."""
    client.create(pytorch_job(namespace))
    job = job_path(namespace)
    wait_for_conditions(client, job, "Created", "Running")
    path = f"/api/v1/namespaces/{namespace}/services/mnist-master-0"
    declared = client.get(path)["spec"]["selector"]
    rival = Rival(client, path, their_selector)
    try:
        told = wait_for_conditions(client, job, OVERRIDDEN, "Created", "Running")
        message = told["status"]["conditions"][0]["message"]
        assert "Service mnist-master-0" in message
        assert f"spec.selector.{REPLICA_TYPE}" in message
        assert rival.writes == 3  # once of its own, and after each attempt
        settled = client.get(path)["metadata"]["resourceVersion"]
        client.patch(job, {"metadata": {"labels": {"look": "again"}}})
        end(client, namespace, "mnist-worker-0", 137)
        wait_for_restart(client, job)
        assert client.get(path)["metadata"]["resourceVersion"] == settled
    finally:
        rival.stop()
    client.patch(path, {"spec": {"selector": declared}})

    def is_in_order() -> bool:
        conditions = client.get(job)["status"]["conditions"]
        return all(each["type"] != OVERRIDDEN for each in conditions)

    eventually("no such condition", is_in_order)


def wait_for_restart(client: Client, job: str) -> None:
    def check() -> bool:
        restarts = client.get(job)["status"].get("restarts")
        assert restarts == {"mnist-worker-0": 1}, f"restarts are {restarts}"
        return True

    eventually("a restart", check)


# ---- by an admission webhook --------------------------------------------------------------------


class Webhook:
    """An admission webhook on loopback that adds a container to each Deployment and sets its image,
    on every write.
    """

    def __init__(self, directory: Path) -> None:
        authority = Authority(directory)
        pair = authority.issue("webhook", alternative="IP:127.0.0.1", usage="serverAuth")
        self._authority = base64.b64encode(authority.certificate.read_bytes()).decode()
        self.asked = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self._admit))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.certificate, pair.key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="webhook", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def configuration(self, namespace: str) -> Object:
        url = f"https://127.0.0.1:{self._server.server_port}/"
        rule = {
            "apiGroups": ["apps"],
            "apiVersions": ["v1"],
            "operations": ["CREATE", "UPDATE"],
            "resources": ["deployments"],
        }
        hook = {
            "name": "deployments.registry.test",
            "clientConfig": {"url": url, "caBundle": self._authority},
            "rules": [rule],
            "namespaceSelector": {"matchLabels": {"mutated": namespace}},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 20,
        }
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": namespace},
            "webhooks": [hook],
        }

    def _admit(self, review: Object) -> Object:
        self.asked += 1
        containers = review["request"]["object"]["spec"]["template"]["spec"]["containers"]
        kept = [one for one in containers if one["name"] == "main"]
        sidecar = {"name": "sidecar", "image": "registry.test/sidecar:1"}
        changed = [{**kept[0], "image": THEIRS}, sidecar]
        path = "/spec/template/spec/containers"
        patch = json.dumps([{"op": "replace", "path": path, "value": changed}])
        response = {
            "uid": review["request"]["uid"],
            "allowed": True,
            "patchType": "JSONPatch",
            "patch": base64.b64encode(patch.encode()).decode(),
        }
        return {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}


def _handler(admit: Callable[[Object], Object]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            answer = json.dumps(admit(json.loads(self.rfile.read(length)))).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


@pytest.fixture
def webhook(client: Client, namespace: str, tmp_path: Path) -> Iterator[Webhook]:
    """For the Deployments of `namespace`."""
    label = {"metadata": {"labels": {"mutated": namespace}}}
    client.patch(f"/api/v1/namespaces/{namespace}", label)
    made = Webhook(tmp_path)
    try:
        client.request("POST", WEBHOOKS, made.configuration(namespace))
        yield made
        client.delete(f"{WEBHOOKS}/{namespace}")
    finally:
        made.stop()


def test_what_a_webhook_changes_at_every_write_is_told_and_left_alone(
    webhook: Webhook,
    client: Client,
    manager: GlobalManager,
    namespace: str,
    control_plane: ControlPlane,
    kubelet: None,
) -> None:
    """Also by the next GlobalManager, and another edit is put back all the same."""

    def is_mutated() -> bool:
        probe = deployment_of_somebody(namespace)
        return len(client.create(probe, dry_run=True)["spec"]["template"]["spec"]["containers"]) > 1

    service = Service(client, "digits", namespace)
    service.eventually("the webhook at work", is_mutated)
    service.apply()
    service.wait_for_condition(OVERRIDDEN, "SetByOthers")
    message = service.condition(OVERRIDDEN)["message"]
    assert "spec.template.spec.containers" in message
    settled = service.marks()
    manager.stop()
    manager.start()
    service.edit(cloudWorker={"name": "so that the manager looks again"})
    service.wait_for("observedGeneration", 2)
    assert service.condition(OVERRIDDEN)["message"] == message
    assert service.marks() == settled
    scaled = ("scale", "deployment", "digits-deployment-edge", "--replicas=0")
    done = control_plane.kubectl("--namespace", namespace, *scaled)
    assert done.returncode == 0, done.stderr

    def check() -> bool:
        return bool(edge_deployment(service)["spec"]["replicas"])

    service.eventually("a replica again", check)
    service.wait_for("phase", "Running")
    assert {*service.made()} == ALL


def deployment_of_somebody(namespace: str) -> Object:
    labels = {"app": "probe"}
    container = {"name": "main", "image": "registry.test/probe:1"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "probe", "namespace": namespace},
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template},
    }
