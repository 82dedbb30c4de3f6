"""Bad input from those who install: kubeconfig, rights, CustomResourceDefinitions.

The GlobalManager says in words what to do: it exits where waiting cannot help, else it is not
ready, and goes on by itself once an administrator has done that.
"""

import base64
import http.client
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from common import wire
from common.ids import Uid
from edgeai.api import Object, path_of, wait_until
from globalmanager.edge.server import SESSION_PATH
from globalmanager.edge.service_accounts import AUDIENCE
from globalmanager.secrets import worker_secret
from tests.certificates import Authority
from tests.cluster import binaries
from tests.cluster.conftest import CRDS, SYSTEM_NAMESPACE, install_crds
from tests.cluster.controlplane import ControlPlane
from tests.cluster.edge import Edge
from tests.cluster.manager import GlobalManager
from tests.cluster.rights import Right, Rights, denied_in, granted
from tests.cluster.samples import model, service

USER: Final = "gm"
SETTLE_S: Final = 40.0
WATCHED_S: Final = 6.0  # shorter than the pause between two tries of what is not kept
EXIT_S: Final = 30.0
FLAGS: Final = (
    *("--watch-s", "2", "--replica-name", "gm"),
    *("--lease-duration-s", "6", "--lease-renew-deadline-s", "4", "--lease-retry-s", "0.5"),
)
RBAC: Final = "kubectl apply -f deploy/base/globalmanager/rbac.yaml"
APPLY_CRDS: Final = "kubectl apply -f deploy/crds"
UNSERVED: Final = "horizontalpodautoscalers"  # of autoscaling/v2, before Kubernetes 1.23
TOKENS: Final = {"edge0": "secret-of-edge0"}
WORKER: Final = "digits-edge"
JOBS: Final = "jointinferenceservices.edgeai.io"

Launch = Callable[..., "Manager"]


class Manager:
    """A GlobalManager that is not ready yet, and what it says."""

    def __init__(self, kubeconfig: Path, directory: Path, flags: tuple[str, ...]) -> None:
        self._log = directory / "globalmanager.log"
        self.process = GlobalManager(
            kubeconfig=kubeconfig,
            system_namespace=SYSTEM_NAMESPACE,
            directory=directory,
            tokens=TOKENS,
            flags=(*FLAGS, *flags),
        )
        self.process.launch()

    def stop(self) -> None:
        print(f"--- {self.process.logs()}")
        assert self.process.stop() == 0, self.process.logs()

    def log(self) -> list[Object]:
        return [json.loads(line) for line in self._log.read_text().splitlines()]

    def warnings(self, since: int = 0) -> list[str]:
        return [json.dumps(each) for each in self.log()[since:] if each["level"] != "info"]

    def patches(self) -> float:
        """How many it has sent: of statuses, and of Events that come again."""
        sent = self.process.metric("edgeai_kubernetes_requests_total")
        return sum(count for labels, count in sent.items() if 'verb="patch"' in labels)

    def words(self) -> list[str]:
        """The reasons of /readyz."""
        return self.process.readyz()[1]

    def wait_for_reason(self, *words: str, ready: bool = False) -> str:
        """Of /readyz, with all these words in it."""
        found: list[str] = []

        def missing() -> str:
            is_ready, reasons = self.process.readyz()
            found[:] = [each for each in reasons if all(word in each for word in words)]
            return "" if found and is_ready is ready else f"ready {is_ready}, it says {reasons}"

        wait_until(f"a reason with {words}", missing, timeout_s=SETTLE_S)
        return found[0]

    def wait_for_warning(self, *words: str, since: int = 0) -> None:
        def missing() -> str:
            found = self.warnings(since)
            if any(all(word in each for word in words) for each in found):
                return ""
            return f"it warned of {found[-5:]}"

        wait_until(f"a warning with {words}", missing, timeout_s=SETTLE_S)

    def wait_for_no_reason(self, word: str) -> None:
        def still() -> str:
            return ", ".join(each for each in self.words() if word in each)

        wait_until(f"no reason with {word}", still, timeout_s=SETTLE_S)

    def wait_until_well(self) -> None:
        """Ready, and nothing amiss."""

        def missing() -> str:
            is_ready, reasons = self.process.readyz()
            amiss = [each for each in reasons if UNSERVED not in each]
            return "" if is_ready and not amiss else f"ready {is_ready}, it says {amiss}"

        wait_until("readiness", missing, timeout_s=SETTLE_S)


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of its own, without controllers, nodes' kubelets or CRDs."""
    plane = ControlPlane(
        binaries.obtain(), tmp_path_factory.mktemp("controlplane"), users={USER: ""}
    )
    try:
        plane.start(with_controllers=False)
        for kind, name in (("Namespace", SYSTEM_NAMESPACE), ("Node", "edge0")):
            plane.client.create({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}})
        yield plane
        plane.check_alive()
    finally:
        plane.stop()


@pytest.fixture
def launch(plane: ControlPlane, tmp_path: Path) -> Iterator[Launch]:
    """Starts GlobalManagers; each must still be there at the end, and is stopped then."""
    with ExitStack() as stack:

        def start(kubeconfig: Path, *flags: str) -> Manager:
            manager = Manager(kubeconfig, tmp_path, flags)
            stack.callback(manager.stop)
            return manager

        yield start


@pytest.fixture
def namespace(plane: ControlPlane) -> str:
    """A fresh one; it lasts as long as the control plane."""
    metadata = {"generateName": "test-"}
    made = plane.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    name: str = made["metadata"]["name"]
    return name


def create_job(plane: ControlPlane, namespace: str, **changed: Any) -> Object:
    for each in ("small", "big"):
        plane.client.create(model(each, namespace))
    return plane.client.create(service(namespace, **changed))


IMAGE: Final = "registry.test/other:2"
OTHER: Final = {"spec": {"containers": [{"name": "main", "image": IMAGE}]}}


def deployment_path(namespace: str) -> str:
    return f"/apis/apps/v1/namespaces/{namespace}/deployments/digits-deployment-cloud"


def wait_for_image(plane: ControlPlane, namespace: str) -> None:
    def missing() -> str:
        template = plane.client.get(deployment_path(namespace))["spec"]["template"]
        return "" if IMAGE in json.dumps(template) else f"it is {template}"

    wait_until("the other image", missing, timeout_s=SETTLE_S)


def leave_what_nobody_wants(plane: ControlPlane, job: Object) -> None:
    """As an earlier version might have made it for the job."""
    metadata = job["metadata"]
    owner = {key: job[key] for key in ("apiVersion", "kind")}
    owner |= {key: metadata[key] for key in ("name", "uid")}
    left = {
        "name": "digits-old",
        "namespace": metadata["namespace"],
        "labels": {
            "app.kubernetes.io/managed-by": "edgeai",
            "edgeai.io/uid": metadata["uid"],
        },
        "ownerReferences": [{**owner, "controller": True}],
    }
    spec = {"ports": [{"port": 80}]}
    plane.client.create({"apiVersion": "v1", "kind": "Service", "metadata": left, "spec": spec})


def wait_for_deployment(plane: ControlPlane, namespace: str) -> None:
    path, found = deployment_path(namespace), plane.client.find
    wait_until("a worker", lambda: "" if found(path) else "there is none", timeout_s=SETTLE_S)


def untimed(line: str) -> str:
    return json.dumps({k: v for k, v in json.loads(line).items() if k != "timestamp"})


# ---- kubeconfig --------------------------------------------------------------------------------


def lacking(field: str) -> Callable[[Object], Object]:
    return lambda content: {key: value for key, value in content.items() if key != field}


def with_server(url: str) -> Callable[[Object], Object]:
    def change(content: Object) -> Object:
        cluster = {**content["clusters"][0]["cluster"], "server": url}
        return {**content, "clusters": [{"name": "test", "cluster": cluster}]}

    return change


HOPELESS: Final[dict[str, tuple[Callable[[Object], Object | str | None], str]]] = {
    "missing": (lambda _: None, "cannot be read: No such file or directory; name"),
    "no YAML": (lambda _: "clusters: [", "is not YAML"),
    "a list": (lambda _: "[1, 2]", "no YAML mapping"),
    "no current-context": (lacking("current-context"), "current-context is missing or empty; "),
    "another scheme": (with_server("ftp://127.0.0.1:1"), "server 'ftp://127.0.0.1:1' is no http"),
    "no scheme": (with_server("127.0.0.1:6443"), "server '127.0.0.1:6443' is no http"),
}


@pytest.mark.parametrize(("change", "words"), HOPELESS.values(), ids=HOPELESS)
def test_a_kubeconfig_that_cannot_be_used_ends_the_process_with_one_line(
    plane: ControlPlane,
    tmp_path: Path,
    change: Callable[[Object], Object | str | None],
    words: str,
) -> None:
    kubeconfig, tokens = tmp_path / "kubeconfig", tmp_path / "tokens"
    tokens.touch()
    content = change(yaml.safe_load(plane.kubeconfig.read_text()))
    if content is not None:
        kubeconfig.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "globalmanager", "--kubeconfig", str(kubeconfig)),
            *("--edge-plaintext", "allow", "--edge-token-file", str(tokens)),
            *("--edge-address", "127.0.0.1:0", "--http-address", "127.0.0.1:0"),
        ],
        capture_output=True,
        text=True,
        timeout=EXIT_S,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"globalmanager: kubeconfig {kubeconfig}: ")
    assert words in line


def change_kubeconfig(plane: ControlPlane, path: Path, change: Callable[[Object], object]) -> None:
    content = yaml.safe_load(plane.kubeconfig.read_text())
    change(content)
    path.write_text(yaml.safe_dump(content))


def test_a_server_whose_certificate_is_not_trusted_is_told_with_the_field(
    plane: ControlPlane, launch: Launch, tmp_path: Path
) -> None:
    other = Authority(tmp_path).certificate
    kubeconfig = tmp_path / "kubeconfig"

    def distrust(content: Object) -> None:
        cluster = content["clusters"][0]["cluster"]
        del cluster["certificate-authority-data"]
        cluster["certificate-authority"] = str(other)

    change_kubeconfig(plane, kubeconfig, distrust)
    manager = launch(kubeconfig)
    manager.wait_for_reason(plane.url, str(kubeconfig), "certificate-authority", "restart")


def test_plain_http_to_a_server_of_https_is_told_with_the_field(
    plane: ControlPlane, launch: Launch, tmp_path: Path
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    plain = plane.url.replace("https", "http")
    change_kubeconfig(
        plane, kubeconfig, lambda content: content.update(with_server(plain)(content))
    )
    launch(kubeconfig).wait_for_reason("TLS", "https://", str(kubeconfig), "restart")


def test_an_unknown_token_is_told_with_the_file(
    plane: ControlPlane, launch: Launch, tmp_path: Path
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    change_kubeconfig(
        plane, kubeconfig, lambda content: content["users"][0].update(user={"token": "unknown"})
    )
    manager = launch(kubeconfig)
    manager.wait_for_reason("401", "credential", str(kubeconfig))


# ---- CustomResourceDefinitions ------------------------------------------------------------------

Crd = dict[str, Any]


def crds(group: str = "") -> list[Crd]:
    """Those of deploy/, of one group or all."""
    return [yaml.safe_load(path.read_text()) for path in sorted(CRDS.glob(f"{group}*.yaml"))]


def apply(plane: ControlPlane, documents: list[Crd]) -> None:
    done = plane.kubectl("apply", "-f", "-", documents=documents)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def bare(plane: ControlPlane) -> ControlPlane:
    """Without the CRDs, and so without any object of them."""
    done = plane.kubectl("delete", "--ignore-not-found", "--wait", "-f", str(CRDS))
    assert done.returncode == 0, done.stderr
    return plane


def test_crds_that_are_not_installed_are_told_and_awaited(
    bare: ControlPlane, launch: Launch
) -> None:
    manager = launch(bare.kubeconfig)
    for each in crds():
        manager.wait_for_reason(f"{each['metadata']['name']}: ", "not installed", APPLY_CRDS)
    apply(bare, crds("edgeai.io"))
    manager.wait_for_no_reason(f"{JOBS}: ")
    manager.wait_for_reason("jointinferenceservices.sedna.io: ", "not installed", APPLY_CRDS)
    apply(bare, crds())
    manager.wait_until_well()


@pytest.fixture
def installed(plane: ControlPlane) -> Iterator[ControlPlane]:
    """With the CRDs, also afterwards."""
    install_crds(plane)
    yield plane
    install_crds(plane)


def of_another_version(crd: Crd) -> Crd:
    (version,) = crd["spec"]["versions"]
    older = {**version, "name": "v1alpha0", "storage": False}
    return {**crd, "spec": {**crd["spec"], "versions": [{**version, "served": False}, older]}}


def test_crds_of_another_version_are_told_and_replaced(
    installed: ControlPlane, launch: Launch
) -> None:
    apply(installed, [of_another_version(each) for each in crds()])
    manager = launch(installed.kubeconfig)
    manager.wait_for_reason(f"{JOBS}: ", "without edgeai.io/v1alpha1", APPLY_CRDS)
    apply(installed, crds())
    manager.wait_until_well()


def without_status(version: Object) -> None:
    del version["subresources"]


def without(*names: str) -> Callable[[Object], None]:
    """Fields of .status, or of its conditions."""

    def prune(version: Object) -> None:
        status = version["schema"]["openAPIV3Schema"]["properties"]["status"]
        for name in names:
            outer, _, inner = name.rpartition(".")
            schema = status["properties"][outer]["items"] if outer else status
            del schema["properties"][inner]
            if inner in schema.get("required", ()):
                schema["required"].remove(inner)

    return prune


def demanding(name: str) -> Callable[[Object], None]:
    """A field of .status that is not written any more."""

    def demand(version: Object) -> None:
        version["schema"]["openAPIV3Schema"]["properties"]["status"]["required"] = [name]

    return demand


# CRD -> what was different in an older one, and what is told.
OLDER: Final[dict[str, tuple[Callable[[Object], None], str]]] = {
    JOBS: (without("workers"), "drops status.workers"),
    "jointinferenceservices.sedna.io": (without_status, "has no status subresource"),
    # Each write would change the times in it, be seen, and lead to the next.
    "models.edgeai.io": (without("conditions.status"), "drops status.conditions"),
    # As Sedna's own have it.
    "models.sedna.io": (
        without("conditions.observedGeneration", "observedGeneration"),
        "drops status.conditions, status.observedGeneration",
    ),
    "datasets.edgeai.io": (demanding("legacy"), "refuses status fields"),
}


def older(crd: Crd) -> Crd:
    change, _ = OLDER.get(crd["metadata"]["name"], (lambda _version: None, ""))
    change(crd["spec"]["versions"][0])
    return crd


def test_crds_that_do_not_keep_a_status_are_told_and_objects_not_written_again_and_again(
    installed: ControlPlane, launch: Launch, namespace: str, tmp_path: Path
) -> None:
    """The rest works: it is ready, workers are made, and what edges report is not lost."""
    apply(installed, [older(each) for each in crds()])
    manager = launch(installed.kubeconfig)
    manager.process.wait_until_ready()
    made = [installed.client.create(each) for each in one_of_each(namespace)]
    (job, *_) = made
    wait_for_deployment(installed, namespace)
    with connected_edge(manager, tmp_path) as edge:
        edge.report(WORKER, secret=secret_of(installed, job), seen=20, uploaded=2)
        for name, (_, words) in OLDER.items():
            manager.wait_for_reason(f"{name}: ", words, APPLY_CRDS, ready=True)
            manager.wait_for_warning("cannot be written", words, f"{name}/{namespace}/")
        patches = manager.patches()
        assert len(versions(installed, path_of(made[2]))) <= 2
        assert manager.patches() - patches <= 1 + len(made)  # of each, and of the report
        assert len(manager.warnings()) == len(set(map(untimed, manager.warnings())))
        apply(installed, crds())
        wait_for_count(installed, job, 2)
    manager.wait_until_well()
    for each in made:
        assert installed.client.get(path_of(each))["status"]["conditions"][0]["observedGeneration"]


def one_of_each(namespace: str) -> Iterator[Object]:
    """A service in both groups, the first with an edge worker on edge0, and what it refers to."""
    yield service(namespace)
    yield {**service(namespace, name="sedna-digits"), "apiVersion": "sedna.io/v1alpha1"}
    for group in ("edgeai.io", "sedna.io"):
        yield from (model(each, namespace, group=group) for each in ("small", "big"))
    yield {
        "apiVersion": "edgeai.io/v1alpha1",
        "kind": "Dataset",
        "metadata": {"name": "pictures", "namespace": namespace},
        "spec": {"url": "/data/pictures.txt", "format": "txt", "nodeName": "edge0"},
    }


def versions(plane: ControlPlane, path: str) -> set[str]:
    """Those that the object has for some time."""
    found = set()
    until = time.monotonic() + WATCHED_S
    while time.monotonic() < until:
        found.add(plane.client.get(path)["metadata"]["resourceVersion"])
        time.sleep(0.1)
    return found


@contextmanager
def connected_edge(manager: Manager, directory: Path) -> Iterator[Edge]:
    _, _, port = manager.process.edge_address.rpartition(":")
    edge = Edge("edge0", token=TOKENS["edge0"], port=int(port), directory=directory)
    edge.start()
    try:
        yield edge
    finally:
        edge.stop(signal.SIGKILL)
        print(f"--- edge\n{edge.logs()}")


def secret_of(plane: ControlPlane, job: Object) -> str:
    path = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/secrets/edgeai-worker-key"
    key = base64.b64decode(plane.client.get(path)["data"]["key"])
    return worker_secret(key, Uid(job["metadata"]["uid"]), "edge")


def wait_for_count(plane: ControlPlane, job: Object, uploaded: int) -> None:
    def missing() -> str:
        status = {"workers": {}} | plane.client.get(path_of(job)).get("status", {})
        is_told = status["workers"].keys() == {WORKER}
        return "" if is_told and status["uploadCount"] == uploaded else f"status is {status}"

    wait_until(f"uploadCount {uploaded}", missing, timeout_s=SETTLE_S)


# ---- rights ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bound(plane: ControlPlane) -> Rights:
    rights = Rights(plane.client, USER)
    rights.bind()
    return rights


@pytest.fixture
def rights(plane: ControlPlane, bound: Rights) -> Rights:
    """Of USER: none."""
    install_crds(plane)
    plane.client.delete(f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/secrets/edgeai-worker-key")
    bound.grant(lambda _right: False)
    return bound


@pytest.fixture
def kubeconfig(plane: ControlPlane, tmp_path: Path) -> Path:
    """Of USER."""
    path = tmp_path / "kubeconfig"
    plane.write_kubeconfig(path, user=USER)
    return path


WATCHED: Final = {right for right in granted() if right.verb in ("list", "watch")}


def test_who_grants_what_is_asked_for_gets_a_ready_manager(
    rights: Rights, kubeconfig: Path, launch: Launch
) -> None:
    """From none at all, one after another; the process is the same all the time."""
    manager = launch(kubeconfig)
    manager.wait_for_reason("get secrets", "403", RBAC)
    held: set[Right] = set()

    def missing() -> str:
        reasons = manager.words()
        asked = {right for each in reasons if RBAC in each for right in denied_in(each)}
        assert asked <= granted()
        if not asked <= held:
            held.update(asked)
            rights.grant(lambda right: right in held)
        still = [str(each) for each in WATCHED - held]
        return ", ".join(each for each in [*still, *reasons] if UNSERVED not in each)

    wait_until("readiness", missing, timeout_s=2 * SETTLE_S)
    manager.wait_until_well()
    warned = manager.warnings()
    assert len(warned) == len(set(map(untimed, warned))), warned


# What a job is begun with, beside WATCHED. (The key may have been there.)
BEGUN: Final = {
    *(Right("", "secrets", verb) for verb in ("get", "create")),
    *(Right("coordination.k8s.io", "leases", verb) for verb in ("get", "create", "update")),
    *(Right("", "configmaps", verb) for verb in ("get", "create")),
    *(Right(*what, "create") for what in (("apps", "deployments"), ("", "services"))),
    *(
        Right("edgeai.io", f"{what}/status", "patch")
        for what in ("jointinferenceservices", "models")
    ),
    Right("edgeai.io", "jointinferenceservices/finalizers", "update"),
    Right("", "events", "create"),
}
# What a change of it takes; all else is asked for only where two write at the same time, where a
# name is taken, or at the end.
CHANGED: Final = {Right("apps", "deployments", "update"), Right("", "services", "delete")}


def test_who_grants_what_is_asked_for_gets_a_job_that_runs(
    plane: ControlPlane,
    rights: Rights,
    kubeconfig: Path,
    launch: Launch,
    namespace: str,
    tmp_path: Path,
) -> None:
    """The lack of each right is told in a condition, by /readyz, or in the log; nothing ends."""
    held = set(WATCHED)
    rights.grant(lambda right: right in held)
    manager = launch(kubeconfig)
    job = create_job(plane, namespace)

    def grant_until(wanted: set[Right]) -> None:
        def missing() -> str:
            status = plane.client.get(path_of(job)).get("status", {})
            told = [*manager.words(), *manager.warnings(), json.dumps(status)]
            asked = {right for each in told if RBAC in each for right in denied_in(each)}
            assert asked <= granted()
            if not asked <= held:
                held.update(asked)
                rights.grant(lambda right: right in held)
            return ", ".join(map(str, wanted - held))

        wait_until("all rights to be asked for", missing, timeout_s=2 * SETTLE_S)

    with connected_edge(manager, tmp_path):
        grant_until(WATCHED | BEGUN)
        wait_for_deployment(plane, namespace)
        plane.client.patch(path_of(job), {"spec": {"cloudWorker": {"template": OTHER}}})
        leave_what_nobody_wants(plane, job)
        grant_until(WATCHED | BEGUN | CHANGED)
        wait_for_image(plane, namespace)
    manager.wait_until_well()


@pytest.fixture(scope="module")
def calm(
    plane: ControlPlane, bound: Rights, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Manager]:
    """Ready, with all rights; edges show ServiceAccount tokens."""
    install_crds(plane)
    bound.grant()
    directory = tmp_path_factory.mktemp("calm")
    plane.write_kubeconfig(directory / "kubeconfig", user=USER)
    manager = Manager(directory / "kubeconfig", directory, ("--edge-auth", "serviceaccount"))
    try:
        manager.wait_until_well()
        yield manager
    finally:
        manager.stop()


TOLD_BY_READYZ: Final = {
    "watch of a job": Right("edgeai.io", "models", "watch"),
    "watch of what is owned": Right("apps", "deployments", "watch"),
    "renewal of the Lease": Right("coordination.k8s.io", "leases", "update"),
}


@pytest.mark.parametrize("right", TOLD_BY_READYZ.values(), ids=TOLD_BY_READYZ)
def test_a_right_that_is_taken_away_is_told_by_readyz_until_it_is_back(
    bound: Rights, calm: Manager, right: Right
) -> None:
    """What is known already is served on, so it stays ready."""
    since = len(calm.log())
    bound.grant_all_but(right)
    reason = calm.wait_for_reason(f"cannot {right.verb}", RBAC, ready=True)
    assert denied_in(reason) == {right}
    bound.grant()
    calm.wait_until_well()
    assert len(calm.warnings(since)) <= 3


def test_statuses_that_may_not_be_written_are_told_in_the_log(
    plane: ControlPlane, bound: Rights, calm: Manager, namespace: str
) -> None:
    since = len(calm.log())
    bound.grant_all_but(Right("edgeai.io", "jointinferenceservices/status", "patch"))
    job = create_job(plane, namespace)
    calm.wait_for_warning("not reconciled", f"{namespace}/digits", RBAC, since=since)
    wait_for_deployment(plane, namespace)
    bound.grant()
    wait_for_phase(plane, job)


def test_events_that_may_not_be_recorded_disturb_nothing(
    plane: ControlPlane, bound: Rights, calm: Manager, namespace: str
) -> None:
    since = len(calm.log())
    bound.grant(lambda right: right.resource != "events")
    wait_for_phase(plane, create_job(plane, namespace))
    wait_for_deployment(plane, namespace)
    calm.wait_for_warning("event dropped", namespace, RBAC, since=since)
    assert not [each for each in calm.warnings(since) if "event dropped" not in each]
    calm.wait_until_well()
    bound.grant()


def wait_for_phase(plane: ControlPlane, job: Object) -> None:
    def missing() -> str:
        return "" if plane.client.get(path_of(job)).get("status", {}).get("phase") else "none"

    wait_until("a phase", missing, timeout_s=SETTLE_S)


def test_tokens_that_may_not_be_reviewed_are_told_and_their_nodes_come_again(
    bound: Rights, calm: Manager
) -> None:
    bound.grant_all_but(Right("authentication.k8s.io", "tokenreviews", "create"))
    since = len(calm.log())
    wait_until("503", lambda: knocked(calm, 503), timeout_s=SETTLE_S, poll_s=1.0)
    calm.wait_for_warning("cannot be authenticated", "tokenreviews", RBAC, since=since)
    bound.grant()
    wait_until("401", lambda: knocked(calm, 401), timeout_s=SETTLE_S, poll_s=1.0)


def knocked(manager: Manager, wanted: int) -> str:
    """ "": who comes with a token that nobody has issued is answered so."""
    connection = http.client.HTTPConnection(manager.process.edge_address, timeout=10)
    claims = {"aud": AUDIENCE, "sub": f"system:serviceaccount:{SYSTEM_NAMESPACE}:localcontroller"}
    middle = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    headers = {
        "Authorization": f"Bearer e30.{middle}.e30",
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Key": base64.b64encode(bytes(16)).decode(),
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Protocol": wire.SUBPROTOCOL,
    }
    try:
        connection.request("GET", SESSION_PATH, headers=headers)
        answer = connection.getresponse()
        return "" if answer.status == wanted else f"{answer.status} {answer.read()!r}"
    finally:
        connection.close()
