"""The console in front of a real API server, whose rights count."""

import http.cookiejar
import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from edgeai.api.resources import NODES, PODS, SERVICE_ACCOUNTS, ObjectRef, ResourceType
from edgeai.cli.api import Object
from edgeai.ids import Uid
from edgeai.kube.client import KubeClient
from edgeai.kube.errors import Forbidden
from edgeai.kube.sender import ClientSettings
from edgeai.kube.user import UserClient
from globalmanager.rest.console.actions import CallersApi
from globalmanager.rest.errors import RequestError
from tests.cluster.controlplane import ControlPlane
from tests.cluster.samples import service
from tests.cluster.test_crds import training_job
from tests.globalmanager.kinds.training.samples import pytorch_spec
from tests.support.client import Client
from tests.support.manager import GlobalManager
from tests.support.waiting import eventually

TORCH: Final = ResourceType("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob")
SYSTEM: Final = "edgeai-system"
PAGE: Final = Path(__file__).parents[2] / "docs" / "console.md"
LOOK: Final = ["get", "list"]
CHANGE: Final = [*LOOK, "patch", "delete"]


@pytest.fixture
def job(crds: ControlPlane, client: Client, namespace: str) -> Object:
    del crds  # installed
    return client.create(training_job(namespace, pytorch_spec()))


def token_of(
    client: Client, namespace: str, name: str, verbs: list[str], *, listed: tuple[str, ...] = ()
) -> str:
    """Of a new ServiceAccount with these rights to PyTorchJobs in the namespace.

    Args: listed: resources of the core group that it may list there
    """
    rbac = "rbac.authorization.k8s.io"
    metadata = {"name": name, "namespace": namespace}
    rules = [{"apiGroups": [TORCH.group], "resources": [TORCH.plural], "verbs": verbs}]
    if listed:
        rules.append({"apiGroups": [""], "resources": [*listed], "verbs": ["list"]})
    client.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    client.create(
        {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": metadata, "rules": rules}
    )
    client.create(
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        }
    )
    return client.account_token(namespace, name)


def ref_of(job: Object) -> ObjectRef:
    return ObjectRef(TORCH, job["metadata"]["namespace"], job["metadata"]["name"])


async def test_a_certificate_of_the_global_manager_gives_callers_no_rights(
    control_plane: ControlPlane, client: Client, namespace: str, job: Object, tmp_path: Path
) -> None:
    """An API server asks for the certificate first, and then for the token."""
    kubeconfig = tmp_path / "certificate"
    control_plane.write_certificate_kubeconfig(kubeconfig)
    patch = {"spec": {"runPolicy": {"suspend": True}}}
    looker = token_of(client, namespace, "looker", LOOK)
    async with await KubeClient.from_kubeconfig(kubeconfig) as manager:
        await manager.merge_patch(ref_of(job), {"metadata": {"labels": {"by": "manager"}}})
        async with manager.for_callers(ClientSettings()) as callers:
            api = CallersApi(callers)
            for token in (looker, "no.such.token", ""):
                with pytest.raises(RequestError):
                    await api.patch(token, ref_of(job), patch)
                with pytest.raises(RequestError):
                    await api.delete(token, ref_of(job), Uid(job["metadata"]["uid"]))
            owner = token_of(client, namespace, "owner", CHANGE)
            await api.patch(owner, ref_of(job), patch)
            with pytest.raises(RequestError, match="uid"):
                await api.patch(owner, ref_of(job), {**patch, "metadata": {"uid": "another"}})
            with pytest.raises(RequestError):
                await api.delete(owner, ref_of(job), Uid("another"))
    assert client.get(_path(job))["spec"]["runPolicy"]["suspend"] is True


def _path(job: Object) -> str:
    ref = ref_of(job)
    return TORCH.path(ref.namespace, ref.name)


@pytest.fixture
def console(
    control_plane: ControlPlane, system_namespace: str, job: Object, tmp_path: Path
) -> Iterator[GlobalManager]:
    del job  # its kind is served
    manager = GlobalManager(
        kubeconfig=control_plane.kubeconfig,
        system_namespace=system_namespace,
        directory=tmp_path,
        flags=("--http-auth", "kubernetes"),
    )
    with manager.running():
        yield manager


class Browser:
    def __init__(self, manager: GlobalManager) -> None:
        self._url = f"http://127.0.0.1:{manager.http_port}"
        cookies = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        self._opener = urllib.request.build_opener(cookies)

    def __call__(self, path: str, form: Mapping[str, Any] | None = None) -> tuple[int, str]:
        data = None if form is None else urllib.parse.urlencode(form).encode()
        try:
            with self._opener.open(self._url + path, data, timeout=30) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()


def test_a_tenant_sees_and_changes_its_own_namespace_with_its_own_rights(
    client: Client, namespace: str, job: Object, console: GlobalManager
) -> None:
    page = f"/jobs/{TORCH}/{namespace}/{job['metadata']['name']}"
    looker, owner = Browser(console), Browser(console)
    looker("/login", {"token": token_of(client, namespace, "looker", LOOK)})
    owner("/login", {"token": token_of(client, namespace, "owner", CHANGE)})
    eventually("the job", lambda: looker(page)[0] == 200)
    status, text = looker("/")
    assert (status, f"{namespace}/{job['metadata']['name']}" in looker("/jobs")[1]) == (200, True)
    assert "You may not list nodes" in text
    assert looker("/?namespace=default")[1].count("You may not list any jobs") == 1
    assert "Suspend</button>" not in looker(page)[1]
    form = dict(re.findall(r'name="(form_key|uid)" value="([^"]+)"', owner(page)[1]))
    assert owner(f"{page}/suspend", form)[0] == 200
    assert client.get(_path(job))["spec"]["runPolicy"]["suspend"] is True
    stolen = {**form, **dict(re.findall(r'name="(form_key)" value="([^"]+)"', looker(page)[1]))}
    status, text = looker(f"{page}/resume", stolen)
    assert (status, "cannot patch" in text) == (403, True)
    assert client.get(_path(job))["spec"]["runPolicy"]["suspend"] is True


def test_events_are_those_of_the_job_and_its_pods_with_the_callers_rights(
    client: Client, namespace: str, job: Object, console: GlobalManager
) -> None:
    name = job["metadata"]["name"]
    page = f"/jobs/{TORCH}/{namespace}/{name}"
    tokens = {
        "looker": token_of(client, namespace, "looker", LOOK),
        "teller": token_of(client, namespace, "teller", LOOK, listed=("events",)),
        "knower": token_of(client, namespace, "knower", LOOK, listed=("events", "pods")),
    }
    browsers = {user: Browser(console) for user in tokens}
    for user, token in tokens.items():
        browsers[user]("/login", {"token": token})
    knower = browsers["knower"]
    eventually("the pods", lambda: f'id="pod-{name}-' in knower(page)[1])
    _record(client, namespace, "strange", {"kind": "Pod", "name": "stranger", "uid": "other"})
    (pod,) = (
        each
        for each in client.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
        if each["metadata"]["name"] == f"{name}-worker-0"
    )
    about = {"kind": "Pod", "name": f"{name}-worker-0", "uid": pod["metadata"]["uid"]}
    _record(client, namespace, "known", about)
    text = knower(f"{page}/events")[1]
    assert ("known happened" in text, "strange happened" in text) == (True, False)
    assert f"{TORCH.kind} {name}" in text
    text = browsers["teller"](f"{page}/events")[1]
    assert "You may not list pods" in text
    assert (f"{TORCH.kind} {name}" in text, "known happened" in text) == (True, False)
    text = browsers["looker"](f"{page}/events")[1]
    assert f"You may not list events in the namespace {namespace}" in text
    assert f"<td>{TORCH.kind} {name}" not in text


def test_metrics_of_jobs_become_series_when_a_setting_says_so(
    control_plane: ControlPlane,
    crds: ControlPlane,
    client: Client,
    namespace: str,
    system_namespace: str,
    tmp_path: Path,
) -> None:
    """And a Prometheus that is not there costs a note."""
    del crds  # installed
    client.create(service(namespace))
    path = f"/apis/edgeai.io/v1alpha1/namespaces/{namespace}/jointinferenceservices/digits"
    # Each plan computes the metrics from what the workers have counted.
    workers = {"digits-edge-0": {"taskInfo": {"seen": 75, "note": "good"}}}
    client.patch(f"{path}/status", {"status": {"workers": workers}})
    manager = GlobalManager(
        kubeconfig=control_plane.kubeconfig,
        system_namespace=system_namespace,
        directory=tmp_path,
        flags=("--job-metrics", "5", "--console-prometheus-url", "http://127.0.0.1:9"),
    )
    type_ = "jointinferenceservices.edgeai.io"
    labels = f'job_name="digits",job_namespace="{namespace}",key="seen",resource="{type_}"'
    with manager.running():
        series = {f"{{{labels}}}": 75.0}
        eventually("a series", lambda: manager.metric("edgeai_job_metric") == series)
        curve = json.loads(Browser(manager)(f"/jobs/{type_}/{namespace}/digits/curve")[1])
        assert (curve["times"], "Prometheus has no answer" in curve["note"]) == ([], True)


def _record(client: Client, namespace: str, reason: str, about: Object) -> None:
    """An Event, as anybody may write it who has the right."""
    metadata = {"name": f"{about['name']}.{reason}", "namespace": namespace}
    client.create(
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": metadata,
            "involvedObject": {"namespace": namespace, **about},
            "type": "Normal",
            "reason": reason,
            "message": f"{reason} happened",
            "lastTimestamp": "2026-01-01T00:00:00Z",
        }
    )


async def test_a_certificate_alone_gets_the_token_of_the_pages_service_account(
    crds: ControlPlane, client: Client, tmp_path: Path
) -> None:
    """As docs/console.md says. A certificate is nothing that the console could check."""
    section = PAGE.read_text().partition("## edgeai open\n")[2]
    commands = [line.split()[1:] for line in section.splitlines() if line.startswith("kubectl ")]
    assert [command[-1] for command in commands][-1] == f"{SYSTEM}:viewer"
    if client.find(f"/api/v1/namespaces/{SYSTEM}") is None:
        client.create_named("Namespace", SYSTEM)
    for command in commands:
        done = crds.kubectl(*command)
        assert done.returncode == 0, done.stderr
    kubeconfig = tmp_path / "certificate"
    crds.write_certificate_kubeconfig(kubeconfig)
    async with await UserClient.from_kubeconfig(kubeconfig) as user:
        assert await user.token() == ""
        account = ObjectRef(SERVICE_ACCOUNTS, SYSTEM, "viewer")
        token = await user.new_token(account, seconds=8 * 3600)
        async with user.for_callers(ClientSettings()) as callers:
            viewer = callers.bearing(token)
            assert (await viewer.list(NODES)).unreadable == []
            assert (await viewer.list(TORCH)).unreadable == []
            with pytest.raises(Forbidden):
                await viewer.list(PODS)
    async with await UserClient.from_kubeconfig(crds.kubeconfig) as user:
        assert await user.token() != ""
