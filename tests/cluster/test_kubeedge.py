"""The commands of docs/kubeedge.md, and a LocalController that has files of its node alone.

Edgecore is imitated: the files of the node are its own certificate, and nothing else is mounted
while the cloud is away.
"""

import base64
import json
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from edgeai.cli.api import Object
from globalmanager.kinds.training.edge_placement import EDGE_LABEL
from globalmanager.manifests.rbac import NAMESPACE
from tests.cluster import binaries
from tests.cluster.conftest import CHECKOUT
from tests.cluster.controlplane import ControlPlane
from tests.cluster.kubeedge import files_of
from tests.cluster.lone_node import LoneNode
from tests.cluster.programs import Program
from tests.e2e.document import Shell, blocks, link_programs
from tests.support.certificates import Authority
from tests.support.manager import GlobalManager
from tests.support.ports import free_port

PAGE: Final = CHECKOUT / "docs" / "kubeedge.md"
EDGE: Final = "edge0"
_SSH: Final = """#!/bin/sh
shift
exec sh -c "$(echo "$*" | sed 's|/etc/|{root}/etc/|g')"
"""
_SCP: Final = """#!/bin/sh
exec cp "$1" "{root}${{2#*:}}"
"""


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """With a cloud node, on which pods of edgeai become ready."""
    directory = tmp_path_factory.mktemp("controlplane")
    plane = ControlPlane(binaries.obtain(), directory, watches_nodes=True)
    with plane.running():
        cloud_node = LoneNode(plane.client, "cloud0", NAMESPACE, {})
        yield plane
        cloud_node.remove()


@pytest.fixture(scope="module")
def edge_node(plane: ControlPlane) -> Iterator[LoneNode]:
    node = LoneNode(plane.client, EDGE, NAMESPACE, {EDGE_LABEL: ""})
    yield node
    node.remove()


class KubeEdgeNode:
    """The files of a KubeEdge node, below `root`."""

    def __init__(self, root: Path, authority: Authority) -> None:
        self.root = root
        for path, content in files_of(EDGE, authority).items():
            file = Path(f"{root}{path}")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> KubeEdgeNode:
    keys = tmp_path_factory.mktemp("kubeedge")
    return KubeEdgeNode(tmp_path_factory.mktemp("node"), Authority(keys, subject="/CN=KubeEdge"))


@pytest.fixture(scope="module")
def installed(
    plane: ControlPlane,
    node: KubeEdgeNode,
    edge_node: LoneNode,
    tmp_path_factory: pytest.TempPathFactory,
) -> ControlPlane:
    """The control plane after the page, without the session that ended it."""
    directory = tmp_path_factory.mktemp("shell")
    link_programs(directory)
    for name, text in (("ssh", _SSH), ("scp", _SCP)):
        (directory / name).write_text(text.format(root=node.root))
        (directory / name).chmod(0o755)
    environment = {"KUBECONFIG": str(plane.kubeconfig), "EDGE_HOST": "127.0.0.1"}
    shell = Shell(directory, environment)
    shell.start()
    try:
        for block in blocks(PAGE):
            shell.run(block)
    finally:
        shell.stop()
    edge_node.end_session()
    return plane


def get(plane: ControlPlane, path: str, name: str) -> Object:
    return plane.client.get(f"/{path}/namespaces/{NAMESPACE}/{name}")


def manager_of(plane: ControlPlane, directory: Path) -> GlobalManager:
    """With the flags that mtls gives it, and the files that the page made."""
    secret = get(plane, "api/v1", "secrets/globalmanager-tls")["data"]
    files = {name: base64.b64decode(secret[name]) for name in ("tls.crt", "tls.key")}
    clients = get(plane, "api/v1", "configmaps/globalmanager-client-ca")["data"]
    files["ca.crt"] = clients["ca.crt"].encode()
    for name, content in files.items():
        (directory / name).write_bytes(content)
    return GlobalManager(
        kubeconfig=plane.kubeconfig,
        system_namespace=NAMESPACE,
        directory=directory,
        flags=(
            *("--edge-auth", "mtls", "--edge-plaintext", "refuse"),
            *("--edge-client-ca", str(directory / "ca.crt")),
            *("--edge-tls-certificate", str(directory / "tls.crt")),
            *("--edge-tls-key", str(directory / "tls.key")),
        ),
    )


class LocalController:
    """As the DaemonSet has it, on the node's files: what is no hostPath is not there."""

    def __init__(
        self, daemon_set: Object, node: KubeEdgeNode, address: str, directory: Path
    ) -> None:
        self._port = free_port()
        pod = daemon_set["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        paths = {each["name"]: each.get("hostPath", {}).get("path") for each in pod["volumes"]}
        mounts = {
            each["mountPath"]: f"{node.root}{paths[each['name']]}"
            for each in container["volumeMounts"]
            if paths[each["name"]]
        }
        variables = {each["name"]: each.get("value", "") for each in container["env"]}
        environment = {
            name: mounts[str(Path(value).parent)] + "/" + Path(value).name
            for name, value in variables.items()
            if name.startswith("EDGEAI_")
        }
        assert environment
        argv = [
            *(sys.executable, "-m", "localcontroller", "--node-name", EDGE),
            *("--global-manager", f"wss://{address}", "--state-dir", str(directory / "state")),
            *("--worker-address", "127.0.0.1:0", "--status-address", f"127.0.0.1:{self._port}"),
            *("--reconnect-min-s", "0.3", "--reconnect-max-s", "0.6"),
        ]
        self.program = Program(argv, log=directory / "lc.log", environment=environment)

    def get(self, path: str) -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=5) as found:
                text: str = found.read().decode()
                return text
        except urllib.error.URLError as error:
            raise AssertionError(f"{path}: {error}") from error

    def wait_for_session(self) -> None:
        self.program.eventually(
            "a session", lambda: json.loads(self.get("/api/v1/link"))["connected"] is True
        )


def test_the_page_installs_what_kubeedge_needs(installed: ControlPlane) -> None:
    address = get(installed, "api/v1", "configmaps/localcontroller")["data"]["globalManager"]
    assert address == "wss://127.0.0.1:30900"
    daemon_set = get(installed, "apis/apps/v1", "daemonsets/localcontroller")
    volumes = daemon_set["spec"]["template"]["spec"]["volumes"]
    assert not [each for each in volumes if "projected" in each or "configMap" in each]


def test_the_nodes_own_files_are_enough_also_after_a_restart_offline(
    installed: ControlPlane, node: KubeEdgeNode, tmp_path: Path
) -> None:
    """No token and no ConfigMap: edgecore takes tokens away, and may empty volumes."""
    manager = manager_of(installed, tmp_path)
    daemon_set = get(installed, "apis/apps/v1", "daemonsets/localcontroller")
    controller = LocalController(daemon_set, node, manager.edge_address, tmp_path)
    try:
        manager.start()
        controller.program.start()
        controller.wait_for_session()
        assert manager.stop() == 0, manager.logs()
        controller.program.stop()
        controller.program.start()  # with the cloud away
        controller.program.eventually("readiness", lambda: controller.get("/readyz") == "ok")
        assert json.loads(controller.get("/api/v1/link"))["connected"] is False
        manager.start()
        controller.wait_for_session()
    finally:
        controller.program.stop()
        manager.stop()
