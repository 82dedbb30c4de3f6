"""Bad input to the running whole: a message that names field and reason, and nothing disturbed."""

import base64
import copy
import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from edgeai.cli import environment, system
from edgeai.cli.api import Api, ApiError, Object, path_of
from edgeai.cli.environment import Environment
from edgeai.demo.cutting_proxy import CuttingProxy
from edgeai.demo.joint_inference import story as demo
from tests.support.inference import counts_of
from tests.support.waiting import PATIENCE_S, eventually
from tests.system.digits import PATIENTLY, manifests, streaming

# ---- the command line ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "argv", "says"),
    [
        (
            "globalmanager",
            ["--edge-addres", "127.0.0.1:0"],
            "globalmanager: flag --edge-addres: is unknown; did you mean --edge-address?",
        ),
        (
            "globalmanager",
            [],
            "globalmanager: flag --edge-token-file: is required with --edge-auth token",
        ),
        (
            "globalmanager",
            ["--edge-token-file", "/nowhere/tokens"],
            "/nowhere/tokens",
        ),
        (
            "localcontroller",
            ["--node", "edge0"],
            "localcontroller: flag --node: is unknown",
        ),
        (
            "localcontroller",
            ["--node-name", "EDGE 0", "--global-manager", "ws://127.0.0.1:1"],
            "localcontroller: flag --node-name: 'EDGE 0' is not an RFC 1123 name of a Node",
        ),
    ],
)
def test_wrong_flag_is_one_line_and_exit_status_2(
    module: str, argv: list[str], says: str, tmp_path: Path
) -> None:
    process = run(module, *argv, "--config", str(write(tmp_path / "empty.yaml", "")))
    assert process.returncode == 2
    assert says in process.stderr
    assert len(process.stderr.splitlines()) == 1


@pytest.mark.parametrize("module", ["globalmanager", "localcontroller"])
def test_unknown_key_of_the_configuration_file_is_named(module: str, tmp_path: Path) -> None:
    config = write(tmp_path / "c.yaml", "logLevle: debug\n")
    process = run(module, "--config", str(config))
    assert process.returncode == 2
    assert f"{config}: key 'logLevle' is unknown; did you mean logLevel?" in process.stderr


def run(module: str, *argv: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", module, *argv]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, env={}
    )


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


# ---- the API server is away --------------------------------------------------------------------


def test_unreachable_api_server_is_waited_for_and_readyz_says_why(
    running: Environment, tmp_path: Path
) -> None:
    address = urlsplit(running.cluster.api)
    with CuttingProxy(lambda: (str(address.hostname), int(address.port or 0))) as proxy:
        proxy.cut("loudly")
        with global_manager(running, f"http://127.0.0.1:{proxy.port}", tmp_path) as readyz:
            eventually("the reason", lambda: "Kubernetes" in reasons(readyz()))
            code, body = readyz()
            assert code == 503
            assert body["ready"] is False
            proxy.mend()
            eventually("readiness", lambda: readyz()[0] == 200)


Readyz = Callable[[], tuple[int, dict[str, Any]]]


def reasons(answer: tuple[int, dict[str, Any]]) -> str:
    return "; ".join(answer[1].get("reasons", [])) or "no reason given"


@contextmanager
def global_manager(running: Environment, api: str, directory: Path) -> Iterator[Readyz]:
    """A further GlobalManager, for a namespace of its own; yields how to ask its /readyz."""
    kubeconfig = running.kubeconfig.read_text().replace(running.cluster.api, api)
    host = f"{running.cluster.network}.0.99"
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "globalmanager", "--system-namespace", "default"),
            *("--kubeconfig", str(write(directory / "kubeconfig", kubeconfig))),
            *("--edge-token-file", str(write(directory / "tokens", ""))),
            *("--edge-plaintext", "allow"),
            *("--edge-address", f"{host}:9000", "--http-address", f"{host}:9001"),
            *("--namespace", "elsewhere"),
        ],
        stderr=subprocess.DEVNULL,
    )

    def readyz() -> tuple[int, dict[str, Any]]:
        try:
            with urllib.request.urlopen(f"http://{host}:9001/readyz", timeout=PATIENCE_S) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)
        except urllib.error.URLError as error:
            return 0, {"reasons": [str(error)]}

    try:
        yield readyz
        assert process.poll() is None, "the GlobalManager ended"
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


# ---- resources ---------------------------------------------------------------------------------


TEMPLATE = "spec.edgeWorker.template"
MINING = "spec.edgeWorker.hardExampleMining"


def with_(service: Object, path: str, value: object) -> Object:
    """A copy of `service` with one field changed; `path` like "spec.edgeWorker.model.name"."""
    changed = copy.deepcopy(service)
    *parents, last = path.split(".")
    at = changed
    for parent in parents:
        at = at[parent]
    at[last] = value
    return changed


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        ("spec.edgeWorker", "not a map", "spec.edgeWorker"),
        ("spec.edgeWorker.model.name", 7, "spec.edgeWorker.model.name"),
        ("spec.edgeWorker.model.name", "", "spec.edgeWorker.model.name"),
        (f"{TEMPLATE}.spec.containers", [], f"{TEMPLATE}.spec.containers"),
        (f"{MINING}.name", "Magic", f"{MINING}.name"),
    ],
    ids=["wrong type", "number for a name", "empty model name", "no container", "unknown mining"],
)
def test_bad_resource_is_refused_by_field(
    running: Environment, model_files: Path, path: str, value: object, field: str
) -> None:
    service = with_(manifests(model_files, edge_env={})[-1], path, value)
    with pytest.raises(ApiError) as caught:
        running.api.apply(service)
    assert caught.value.code == 422
    assert field in str(caught.value)


def conditions(api: Api, path: str) -> dict[str, Object]:
    status = api.get(path).get("status") or {}
    return {condition["type"]: condition for condition in status.get("conditions") or ()}


def test_unknown_node_and_missing_models_are_waited_for_by_name(
    running: Environment, model_files: Path
) -> None:
    service = manifests(model_files, edge_env={})[-1]
    service = with_(service, "spec.edgeWorker.template.spec.nodeName", "edge9")
    service = with_(service, "metadata.name", "waits")
    applied = running.api.apply(service)
    try:

        def check() -> bool:
            found = conditions(running.api, path_of(applied)).get("ResolvedRefs", {})
            message = found.get("message", "")
            named = all(name in message for name in ("edge9", "digits-edge", "digits-cloud"))
            assert named, f"the message is {message!r}"
            return True

        eventually("a condition that names what is missing", check)
    finally:
        running.api.delete(path_of(applied))


def test_refused_change_leaves_the_running_service_alone(
    running: Environment, model_files: Path
) -> None:
    with streaming(running, model_files, **PATIENTLY, STREAM_RATE="200") as stream:
        stream.wait_for_uploads()
        service = running.api.get(stream.path)
        with pytest.raises(ApiError):
            running.api.apply(with_(service, "spec.cloudWorker.model.name", ""))
        unknown = with_(service, "spec.cloudWorker.model.name", "no-such-model")
        running.api.patch(stream.path, {"spec": unknown["spec"]})
        stream.wait_for_condition("ResolvedRefs", "False")
        result = stream.result()
        assert result["counts"]["fallbacks"] == 0
        stream.wait_for_exact_counts(counts_of(result))


# After it was replaced a LocalController stays away for half of this at least.
QUICK = ("--reconnect-max-s", "4")


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    state_dir = tmp_path_factory.mktemp("quick") / "state"
    yield environment.up(state_dir, tuning=system.Tuning(localcontroller_flags=QUICK))
    environment.down(state_dir)


# ---- a second LocalController with the same name ----------------------------------------------


def test_two_local_controllers_with_one_name_are_told_apart(
    quick: Environment, model_files: Path, tmp_path: Path
) -> None:
    with streaming(quick, model_files, STREAM_RATE="100") as stream:
        stream.wait_for_uploads()
        with second_local_controller(quick, tmp_path) as process:
            node_event(quick, "DuplicateNode")
            assert process.poll() is None
        result = stream.result()
        stream.wait_for_exact_counts(counts_of(result))


def node_event(running: Environment, reason: str) -> None:
    def check() -> bool:
        events = running.api.get("/api/v1/events")["items"]
        about = [e for e in events if e["involvedObject"].get("name") == demo.EDGE_NODE]
        assert any(e["reason"] == reason for e in about), f"events: {len(about)}"
        return True

    eventually(f"Event {reason}", check)


@contextmanager
def second_local_controller(
    running: Environment, directory: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Somebody copied edge0's disk image: same name, same token, another ledger."""
    secret = system.localcontroller_of(demo.EDGE_NODE)
    data = running.api.get(f"/api/v1/namespaces/{system.NAMESPACE}/secrets/{secret}")["data"]
    token = directory / "token"
    token.write_bytes(base64.b64decode(data["token"]))
    service = running.api.get(
        f"/api/v1/namespaces/{system.NAMESPACE}/services/{system.GLOBALMANAGER}"
    )
    host = f"{running.cluster.network}.0.98"
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "localcontroller", "--node-name", demo.EDGE_NODE),
            *("--global-manager", f"ws://{service['spec']['clusterIP']}:{system.EDGE_PORT}"),
            *("--state-dir", str(directory / "state"), "--token-file", str(token)),
            *("--worker-address", f"{host}:9100", "--status-address", f"{host}:9101"),
            *("--edge-plaintext", "allow", *QUICK),
        ],
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(10)
