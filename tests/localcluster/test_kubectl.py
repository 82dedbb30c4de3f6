"""kubectl against the API: every verb that a user would try, each in a process of its own."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from localcluster import kubeconfig
from localcluster.podlogs import LogQuery
from localcluster.resources import CONFIGMAPS, CUSTOMRESOURCEDEFINITIONS, DEPLOYMENTS, PODS, SECRETS
from localcluster.server import Server
from localcluster.store import Store
from tests.localcluster.conftest import TOKEN, configmap, pod, widget, widget_crd

KUBECTL = shutil.which("kubectl")
pytestmark = pytest.mark.skipif(KUBECTL is None, reason="there is no kubectl on PATH")
TIMEOUT_S = 20


class Output(msgspec.Struct, frozen=True):
    code: int
    out: str
    err: str


class Kubectl:
    """Runs kubectl with a home, a cache and a kubeconfig of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._environment = {
            "HOME": str(home),
            "KUBECONFIG": str(home / "kubeconfig"),
            "PATH": "/usr/bin:/bin",
        }

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        assert KUBECTL is not None
        return await asyncio.create_subprocess_exec(
            KUBECTL,
            f"--cache-dir={self.home}/cache",
            *arguments,
            env=self._environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def run(self, *arguments: str, stdin: str = "") -> Output:
        process = await self.start(*arguments)
        try:
            out, err = await asyncio.wait_for(process.communicate(stdin.encode()), TIMEOUT_S)
        except TimeoutError:
            process.kill()
            await process.wait()
            raise
        return Output(process.returncode or 0, out.decode(), err.decode())

    async def __call__(self, *arguments: str, stdin: str = "") -> str:
        """What a successful run prints."""
        output = await self.run(*arguments, stdin=stdin)
        assert output.code == 0, output.err
        return output.out

    async def apply(self, *objects: Any, flags: tuple[str, ...] = ()) -> str:
        return await self("apply", *flags, "-f", "-", stdin=yaml.safe_dump_all(objects))


@pytest.fixture
async def kubectl(api: Server, tmp_path: Path) -> Kubectl:
    kubeconfig.write(tmp_path / "kubeconfig", url=api.url, token=TOKEN)
    return Kubectl(tmp_path)


@pytest.fixture
def widgets(store: Store) -> Callable[[str], Any]:
    """Defines the custom resource; what it gives reads a widget by name."""
    store.create(CUSTOMRESOURCEDEFINITIONS, widget_crd())
    resource = store.registry.find("edgeai.io", "v1alpha1", "widgets")
    assert resource is not None
    return lambda name: store.get(resource, "default", name)


DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web"},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "main", "image": "nginx:1"}]},
        },
    },
}


async def test_apply_creates_configures_and_leaves_alone(
    kubectl: Kubectl, widgets: Callable[[str], Any]
) -> None:
    assert "widget.edgeai.io/one created" in await kubectl.apply(widget())
    assert "widget.edgeai.io/one unchanged" in await kubectl.apply(widget())
    assert "widget.edgeai.io/one configured" in await kubectl.apply(widget(size=4, color="red"))
    assert "configured" in await kubectl.apply(widget(size=4))  # takes `color` away again
    assert widgets("one")["spec"] == {"size": 4, "replicas": 1}


async def test_apply_patches_a_deployment_strategically(kubectl: Kubectl, store: Store) -> None:
    await kubectl.apply(DEPLOYMENT)
    await kubectl("set", "image", "deployment/web", "main=nginx:2")
    await kubectl("set", "env", "deployment/web", "A=1")
    await kubectl("scale", "deployment/web", "--replicas=3")
    spec = store.get(DEPLOYMENTS, "default", "web")["spec"]
    container = spec["template"]["spec"]["containers"][0]
    assert (spec["replicas"], container["image"]) == (3, "nginx:2")
    assert container["env"] == [{"name": "A", "value": "1"}]
    await kubectl.apply(DEPLOYMENT)
    assert store.get(DEPLOYMENTS, "default", "web")["spec"]["replicas"] == 2


async def test_server_side_apply_and_diff(kubectl: Kubectl, widgets: Callable[[str], Any]) -> None:
    assert "serverside-applied" in await kubectl.apply(widget(), flags=("--server-side",))
    changed = yaml.safe_dump(widget(size=5))
    difference = await kubectl.run("diff", "-f", "-", stdin=changed)
    assert difference.code == 1
    assert "+  size: 5" in difference.out
    assert widgets("one")["spec"]["size"] == 3


async def test_create_and_replace_from_a_file(
    kubectl: Kubectl, widgets: Callable[[str], Any]
) -> None:
    path = kubectl.home / "widget.yaml"
    path.write_text(yaml.safe_dump(widget()))
    assert "widget.edgeai.io/one created" in await kubectl("create", "-f", str(path))
    again = await kubectl.run("create", "-f", str(path))
    assert (again.code, "AlreadyExists" in again.err) == (1, True)
    path.write_text(yaml.safe_dump(widget(size=8)))
    await kubectl("replace", "-f", str(path))
    assert widgets("one")["spec"]["size"] == 8


async def test_a_typo_is_refused_and_named(kubectl: Kubectl, widgets: Callable[[str], Any]) -> None:
    output = await kubectl.run("apply", "-f", "-", stdin=yaml.safe_dump(widget(colour="red")))
    assert output.code == 1
    assert 'unknown field "spec.colour"' in output.err
    output = await kubectl.run("apply", "-f", "-", stdin=yaml.safe_dump(widget(size=0)))
    assert 'The Widget "one" is invalid: spec.size: Invalid value: 0' in output.err


async def test_dry_run_on_the_server_changes_nothing(
    kubectl: Kubectl, store: Store, widgets: Callable[[str], Any]
) -> None:
    before = store.resource_version
    assert "(server dry run)" in await kubectl.apply(widget(), flags=("--dry-run=server",))
    assert store.resource_version == before


async def test_create_by_kind_speaks_protobuf(kubectl: Kubectl, store: Store) -> None:
    await kubectl("create", "namespace", "lab")
    await kubectl("create", "configmap", "c", "--from-literal=a=b", "-n", "lab")
    await kubectl("create", "secret", "generic", "s", "--from-literal=k=v")
    await kubectl("create", "serviceaccount", "robot")
    await kubectl("create", "service", "clusterip", "s", "--tcp=80:8080")
    await kubectl("create", "deployment", "d", "--image=x:1", "--port=80", "--", "serve", "-v")
    assert store.get(CONFIGMAPS, "lab", "c")["data"] == {"a": "b"}
    assert store.get(SECRETS, "default", "s")["data"] == {"k": "dg=="}
    service = await kubectl("get", "svc", "s", "-o", "jsonpath={.spec.ports[0].targetPort}")
    assert service == "8080"
    deployment = store.get(DEPLOYMENTS, "default", "d")["spec"]
    container = deployment["template"]["spec"]["containers"][0]
    assert (container["command"], container["ports"][0]["containerPort"]) == (["serve", "-v"], 80)
    assert await kubectl("auth", "can-i", "create", "pods") == "yes\n"


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ((), "NAME SIZE READY AGE one 3 0s"),
        (("--no-headers",), "one 3 0s"),
        (("-o", "name"), "widget.edgeai.io/one"),
        (("-o", "jsonpath={.items[*].spec.size}"), "3"),
        (("-l", "color=red"), ""),
        (("--field-selector=metadata.name=one", "-o", "name"), "widget.edgeai.io/one"),
        (("-A", "--chunk-size=1", "--no-headers"), "default one 3 0s"),
    ],
)
async def test_get_a_custom_resource(
    kubectl: Kubectl, store: Store, flags: tuple[str, ...], expected: str
) -> None:
    store.create(CUSTOMRESOURCEDEFINITIONS, widget_crd())
    resource = store.registry.find("edgeai.io", "v1alpha1", "widgets")
    assert resource is not None
    store.create(resource, widget())
    assert (await kubectl("get", "wd", *flags)).split() == expected.split()


@pytest.mark.parametrize("form", ["json", "yaml"])
async def test_get_shows_whole_objects(kubectl: Kubectl, store: Store, form: str) -> None:
    created = store.create(CONFIGMAPS, configmap())
    shown = yaml.safe_load(await kubectl("get", "configmap", "one", "-o", form))
    shown["metadata"]["creationTimestamp"] = created["metadata"]["creationTimestamp"]
    assert shown == created


async def test_get_of_built_in_kinds(kubectl: Kubectl, store: Store) -> None:
    store.create(PODS, pod(nodeName="edge-1"))
    await kubectl.apply(DEPLOYMENT)
    pods = await kubectl("get", "pods", "-o", "wide")
    assert pods.splitlines()[1].split() == ["one", "0/1", "Pending", "0", "0s", "<none>", "edge-1"]
    everything = await kubectl("get", "all")
    assert "pod/one" in everything
    assert "deployment.apps/web   0/2" in everything
    assert "kube-system     Active" in await kubectl("get", "namespaces")
    assert (await kubectl.run("get", "events,nodes,crd")).code == 0


async def test_describe(kubectl: Kubectl, store: Store, widgets: Callable[[str], Any]) -> None:
    await kubectl.apply(widget(), DEPLOYMENT)
    store.create(PODS, pod())
    assert "Size:" in await kubectl("describe", "widget", "one")
    assert "2 desired" in await kubectl("describe", "deployment", "web")
    assert "busybox:1" in await kubectl("describe", "pod", "one")
    for kind in ("service", "node", "namespace", "crd", "configmap", "secret"):
        assert (await kubectl.run("describe", kind)).code == 0


async def test_label_annotate_and_patch(kubectl: Kubectl, widgets: Callable[[str], Any]) -> None:
    await kubectl.apply(widget())
    await kubectl("label", "widget", "one", "tier=edge")
    await kubectl("annotate", "widget", "one", "note=hello")
    await kubectl("patch", "widget", "one", "--type=merge", "-p", '{"spec":{"size":6}}')
    operation = '[{"op":"replace","path":"/spec/replicas","value":2}]'
    await kubectl("patch", "widget", "one", "--type=json", "-p", operation)
    status = '{"status":{"phase":"Done"}}'
    await kubectl("patch", "widget", "one", "--subresource=status", "--type=merge", "-p", status)
    one = widgets("one")
    assert one["metadata"]["labels"] == {"tier": "edge"}
    assert one["metadata"]["annotations"]["note"] == "hello"
    assert (one["spec"], one["status"]) == ({"size": 6, "replicas": 2}, {"phase": "Done"})
    await kubectl("label", "widget", "one", "tier-")
    assert not widgets("one")["metadata"].get("labels")


async def test_scale_a_custom_resource(kubectl: Kubectl, widgets: Callable[[str], Any]) -> None:
    await kubectl.apply(widget())
    assert "scaled" in await kubectl("scale", "widget", "one", "--replicas=7")
    assert widgets("one")["spec"]["replicas"] == 7


async def test_wait_for_a_condition(kubectl: Kubectl, store: Store) -> None:
    store.create(PODS, pod())
    waiting = await kubectl.start("wait", "pod/one", "--for=condition=Ready", "--timeout=15s")
    await asyncio.sleep(0)
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    store.patch(PODS, "default", "one", {"status": ready}, subresource="status")
    out, err = await asyncio.wait_for(waiting.communicate(), TIMEOUT_S)
    assert (waiting.returncode, out) == (0, b"pod/one condition met\n"), err


async def test_wait_for_a_field_and_for_a_crd(kubectl: Kubectl, store: Store) -> None:
    await kubectl.apply(widget_crd())
    established = await kubectl(
        "wait", "--for=condition=Established", "crd/widgets.edgeai.io", "--timeout=5s"
    )
    assert "condition met" in established
    store.create(PODS, pod())
    field = "--for=jsonpath={.status.phase}=Pending"
    assert "condition met" in await kubectl("wait", "pod/one", field, "--timeout=5s")


async def test_delete_waits_until_the_object_is_gone(kubectl: Kubectl, store: Store) -> None:
    store.create(PODS, pod(nodeName="edge-1"))
    deleting = await kubectl.start("delete", "pod", "one")
    await eventually_deleted(store)
    assert deleting.returncode is None
    store.delete(PODS, "default", "one", grace_period_s=0)
    out, _ = await asyncio.wait_for(deleting.communicate(), TIMEOUT_S)
    assert out == b'pod "one" deleted\n'


async def eventually_deleted(store: Store) -> None:
    watch = store.watch(PODS)
    async with asyncio.timeout(TIMEOUT_S), watch:
        async for event in watch:
            if "deletionTimestamp" in event.object["metadata"]:
                return


DELETIONS: dict[str, tuple[str, ...]] = {
    "by name": ("delete", "configmap", "a", "b"),
    "all": ("delete", "configmap", "--all"),
    "by label": ("delete", "configmap", "-l", "x=1"),
    "in the foreground": ("delete", "configmap", "a", "b", "--cascade=foreground"),
    "by force": ("delete", "configmap", "a", "b", "--force", "--grace-period=0"),
    "namespace": ("delete", "namespace", "default"),
}


@pytest.mark.parametrize("case", DELETIONS)
async def test_delete(kubectl: Kubectl, store: Store, case: str) -> None:
    for name in ("a", "b"):
        store.create(CONFIGMAPS, configmap(name, labels={"x": "1"}))
    await kubectl(*DELETIONS[case])
    assert store.list(CONFIGMAPS).items == []


async def test_delete_a_crd_with_its_objects(
    kubectl: Kubectl, store: Store, widgets: Callable[[str], Any]
) -> None:
    await kubectl.apply(widget())
    await kubectl("delete", "crd", "widgets.edgeai.io")
    assert store.registry.find("edgeai.io", "v1alpha1", "widgets") is None
    assert (await kubectl.run("get", "widgets")).code == 1


async def test_get_watch_follows(kubectl: Kubectl, store: Store) -> None:
    store.create(CONFIGMAPS, configmap("a"))
    process = await kubectl.start("get", "configmaps", "--watch", "--no-headers")
    assert process.stdout is not None
    read: Callable[[], Awaitable[bytes]] = process.stdout.readline
    try:
        assert (await asyncio.wait_for(read(), TIMEOUT_S)).split()[0] == b"a"
        store.create(CONFIGMAPS, configmap("b"))
        assert (await asyncio.wait_for(read(), TIMEOUT_S)).split()[0] == b"b"
    finally:
        process.terminate()
        await process.communicate()


async def test_logs(kubectl: Kubectl, store: Store, api: Server) -> None:
    async def source(query: LogQuery) -> AsyncIterator[bytes]:
        yield f"{query.container} tail={query.tail_lines}\n".encode()

    api.set_log_source(source)
    store.create(PODS, pod())
    assert await kubectl("logs", "one") == "main tail=None\n"
    assert await kubectl("logs", "one", "-c", "main", "--tail=3", "-f") == "main tail=3\n"
    assert (await kubectl.run("logs", "missing")).code == 1


async def test_api_resources_and_explain(kubectl: Kubectl, widgets: Callable[[str], Any]) -> None:
    listed = await kubectl("api-resources", "--api-group=edgeai.io", "--no-headers")
    assert listed.split() == ["widgets", "wd", "edgeai.io/v1alpha1", "true", "Widget"]
    assert "edgeai.io/v1alpha1" in await kubectl("api-versions")
    assert "Its paint." in await kubectl("explain", "widget.spec.color")
    assert "KIND:       Pod" in await kubectl("explain", "pod")


async def test_two_groups_with_one_plural(kubectl: Kubectl, store: Store) -> None:
    await kubectl.apply(widget_crd("edgeai.io"), widget_crd("sedna.io"))
    await kubectl.apply(widget(size=1), widget(group="sedna.io", size=2))
    for group, size in (("edgeai.io", "1"), ("sedna.io", "2")):
        query = ("get", f"widgets.{group}", "one", "-o", "jsonpath={.spec.size}")
        assert await kubectl(*query) == size


async def test_run_makes_a_pod(kubectl: Kubectl, store: Store) -> None:
    await kubectl("run", "p", "--image=busybox:1", "--", "sleep", "1")
    assert store.get(PODS, "default", "p")["spec"]["containers"][0]["args"] == ["sleep", "1"]


async def test_what_is_not_served_is_said(kubectl: Kubectl) -> None:
    output = await kubectl.run("create", "job", "j", "--image=x")
    assert "not understood as protobuf" in output.err
    output = await kubectl.run("get", "gadgets")
    assert "doesn't have a resource type" in output.err
