"""The GlobalManager's rights in deploy/ are the ones that it uses, on a real API server.

It runs under its own ServiceAccount; the API server's audit log tells what it asks.
"""

import functools
import json
import signal
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from edgeai.api.objects import SPEC_HASH
from edgeai.cli.api import Object, collection_of, path_of
from globalmanager.kinds.elastic.trainingjob.hosts import NUDGE
from globalmanager.manifests.rbac import ACCOUNT, NAMESPACE, ROLE
from tests.cluster import elastic, helm
from tests.cluster.controlplane import AUDITED, ControlPlane
from tests.cluster.kubelet import set_ready
from tests.cluster.programs import Program
from tests.cluster.rights import Right, granted
from tests.cluster.samples import model, service
from tests.cluster.training import end
from tests.globalmanager.kinds.edge.samples import (
    federated_learning_spec,
    incremental_learning_spec,
)
from tests.support.certificates import Authority
from tests.support.client import Client
from tests.support.manager import GlobalManager
from tests.support.ports import free_port
from tests.support.waiting import eventually

GROUPS: Final = ("edgeai.io", "sedna.io")
KUBEFLOW: Final = "kubeflow.org"
TRAINING: Final = (("PyTorchJob", "pytorch", "Master"), ("TFJob", "tensorflow", "Worker"))
EDGE: Final = "edge0"
LOCAL_CONTROLLER: Final = "localcontroller"
LIFETIME_S: Final = 600  # the least that the API server grants
CONFLICT_S: Final = 240.0  # two writes meet by chance
PATCHES: Final = 400  # of an object that may get no status


# A name that somebody else has is read. The tests of names do so for Services and Deployments.
# Commands in pods and scalers have tests of their own (test_executions, test_scalers).
OF_ELASTIC_TRAINING: Final = {
    right
    for right in granted()
    if right.resource.startswith("scale")
    or right.resource == "pods/exec"
    or (right.resource, right.verb)
    in {
        ("serviceaccounts", "get"),
        ("roles", "get"),
        ("rolebindings", "get"),
        ("trainingjobs/finalizers", "update"),
        ("trainingjobs", "get"),
    }
}
# What cannot be seen here: no job has an autoscaler (test_no_autoscaling), PodGroups need a gang
# scheduler (test_gangs), Workloads need Kueue (test_kueue), and the right to block an owner's
# deletion is looked up by an admission plugin.
UNSEEN: Final = {
    *(
        right
        for right in granted()
        if right.resource in ("podgroups", "workloads", "workloads/status")
    ),
    *(
        Right("autoscaling", "horizontalpodautoscalers", verb)
        for verb in ("get", "watch", "create", "update", "delete")
    ),
    *(
        Right(group, f"{plural}/finalizers", "update")
        for group in GROUPS
        for plural in (
            "jointinferenceservices",
            "federatedlearningjobs",
            "incrementallearningjobs",
        )
    ),
    *(Right(KUBEFLOW, f"{plural}/finalizers", "update") for plural in ("pytorchjobs", "tfjobs")),
    *OF_ELASTIC_TRAINING,
}


def asked(event: Object) -> Right | None:
    """None: for what is no resource."""
    if (about := event.get("objectRef")) is None:
        return None
    subresource = f"/{about['subresource']}" if "subresource" in about else ""
    return Right(about.get("apiGroup", ""), about["resource"] + subresource, event["verb"])


def refused(events: list[Object], *namespaces: str) -> set[Right | None]:
    """There and outside namespaces. One that is going, of another test, refuses all Events."""
    return {
        asked(each)
        for each in events
        if each.get("responseStatus", {}).get("code") == 403
        and each.get("objectRef", {}).get("namespace") in (None, *namespaces)
    }


class DeployRights:
    """The ServiceAccounts and rights of deploy/, and what comes and goes under them."""

    def __init__(self, control_plane: ControlPlane, directory: Path) -> None:
        self._control_plane = control_plane
        self.client = control_plane.client
        self._directory = directory
        self._authority = Authority(directory)
        self._managers = 0
        self._kubeconfig = directory / "kubeconfig"
        self.events_before = len(control_plane.audit())

    def install(self) -> None:
        kept = {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
        documents = helm.rendered()
        accounts = [each for each in documents if each["kind"] in kept]
        applied = self._control_plane.kubectl("apply", "-f", "-", documents=accounts)
        assert applied.returncode == 0, applied.stderr
        self.client.delete(f"/api/v1/namespaces/{NAMESPACE}/secrets/edgeai-worker-key")
        kubeconfig = yaml.safe_load(self._control_plane.kubeconfig.read_text())
        kubeconfig["users"][0]["user"] = {"token": self._token(ACCOUNT)}
        self._kubeconfig.touch(mode=0o600)
        self._kubeconfig.write_text(yaml.safe_dump(kubeconfig))

    def refusal(self, object_: Object) -> str:
        """Why the GlobalManager's account may not create it; "": it may. Nothing is kept."""
        done = self._control_plane.kubectl(
            *("create", "--dry-run=server", "--as", AUDITED, "-f", "-"), documents=[object_]
        )
        return done.stderr

    def events(self) -> list[Object]:
        return self._control_plane.audit()[self.events_before :]

    def unseen(self) -> set[Right]:
        return granted() - UNSEEN - {right for each in self.events() if (right := asked(each))}

    def wait_for(self, *rights: Right) -> None:
        def check() -> bool:
            left = self.unseen() & set(rights)
            assert not left, f"unused: {', '.join(' '.join(right) for right in sorted(left))}"
            return True

        eventually("use of rights", check, poll_s=0.2)

    def manager(self) -> GlobalManager:
        """Another process under the GlobalManager's account."""
        self._managers += 1
        directory = self._directory / f"globalmanager-{self._managers}"
        directory.mkdir()
        certificate, key = self._authority.issue(
            "gm", alternative="IP:127.0.0.1", usage="serverAuth"
        )
        return GlobalManager(
            kubeconfig=self._kubeconfig,
            system_namespace=NAMESPACE,
            directory=directory,
            flags=(
                *("--edge-auth", "serviceaccount", "--edge-plaintext", "refuse"),
                *("--http-auth", "kubernetes"),
                *("--edge-service-account", f"{NAMESPACE}/{LOCAL_CONTROLLER}"),
                *("--edge-tls-certificate", str(certificate), "--edge-tls-key", str(key)),
            ),
        )

    def visit(self, manager: GlobalManager) -> None:
        """A LocalController comes, under its own account, and goes."""
        pod = self._pod()
        token = self._directory / "token"
        token.touch(mode=0o600)
        token.write_text(self._token(LOCAL_CONTROLLER, pod))
        port = free_port()
        program = Program(
            [
                *(sys.executable, "-m", "localcontroller", "--node-name", EDGE),
                *("--global-manager", f"wss://{manager.edge_address}"),
                *("--token-file", str(token), "--ca-file", str(self._authority.certificate)),
                *("--state-dir", str(self._directory / "state")),
                *("--worker-address", "127.0.0.1:0", "--status-address", f"127.0.0.1:{port}"),
            ],
            log=self._directory / "localcontroller.log",
        )
        try:
            program.start()
            program.eventually("a session", lambda: _is_linked(port))
            self.wait_for(Right("", "configmaps", "create"))
        finally:
            program.stop()
            self.client.request("DELETE", path_of(pod), {"gracePeriodSeconds": 0})

    def code_of(self, manager: GlobalManager, path: str, account: str = "") -> int:
        """The code of the Status that REST answers to the ServiceAccount; 200: no Status."""
        token = self._token(account) if account else ""
        answer = json.loads(manager.get(path, token=token))
        return int(answer["code"]) if answer.get("kind") == "Status" else 200

    def _pod(self) -> Object:
        container = {"name": "localcontroller", "image": "registry.test/localcontroller"}
        return self.client.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "lc", "namespace": NAMESPACE},
                "spec": {
                    "serviceAccountName": LOCAL_CONTROLLER,
                    "automountServiceAccountToken": False,
                    "nodeName": EDGE,
                    "containers": [container],
                },
            }
        )

    def _token(self, account: str, pod: Object | None = None) -> str:
        """For the API server; or a pod's, for the GlobalManager."""
        spec: dict[str, Any] = {"expirationSeconds": LIFETIME_S}
        if pod is not None:
            bound = {key: pod["metadata"][key] for key in ("name", "uid")}
            spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", **bound}
            spec["audiences"] = ["edgeai-globalmanager"]
        return self.client.account_token(NAMESPACE, account, **spec)


def _is_linked(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/link", timeout=5) as answer:
            return json.load(answer)["connected"] is True
    except OSError:
        return False


@pytest.fixture
def installation(
    crds: ControlPlane, system_namespace: str, nodes: tuple[str, ...], tmp_path: Path
) -> DeployRights:
    assert EDGE in nodes
    assert system_namespace == NAMESPACE
    installation = DeployRights(crds, tmp_path)
    installation.install()
    return installation


@pytest.fixture
def busy(installation: DeployRights, namespace: str) -> Iterator[Callable[[], GlobalManager]]:
    """Starts GlobalManagers; the last one is stopped at the end."""
    started: list[GlobalManager] = []

    def start() -> GlobalManager:
        started.append(installation.manager())
        started[-1].start()
        return started[-1]

    yield start
    for manager in started:
        manager.stop(signal.SIGKILL)


@pytest.mark.timeout(480)
def test_every_right_is_used_and_none_is_missing(
    installation: DeployRights, busy: Callable[[], GlobalManager], namespace: str
) -> None:
    client = installation.client
    manager = busy()
    installation.visit(manager)
    read_by_rest(installation, manager, namespace)
    occupy_names(client, namespace)
    jobs = [client.create(each) for each in one_of_each(namespace)]
    for job in jobs:
        if job["kind"] == "IncrementalLearningJob":
            deploy_a_round(client, job)
    for each in training_jobs(namespace, "short", activeDeadlineSeconds=1):
        client.create(each)
    wait_until_made(client, namespace)
    spoil_what_was_made(client, namespace)
    leave_what_nobody_wants(client, namespace, jobs[0])
    train_elastically(client, namespace)
    write_at_the_same_time(installation, namespace)
    installation.wait_for(*(right for right in soon_seen() if right.group == KUBEFLOW))
    assert manager.stop() == 0, manager.logs()

    manager = busy()
    client.delete(f"/api/v1/namespaces/{namespace}/services/digits-cloud")
    installation.wait_for(*(right for right in granted() if right.resource == "events"))
    assert manager.stop() == 0, manager.logs()

    installation.wait_for(*granted() - UNSEEN)
    assert refused(installation.events(), namespace, NAMESPACE) == set()
    beyond = {right for each in installation.events() if (right := asked(each))} - granted()
    assert beyond == set()


def read_by_rest(installation: DeployRights, manager: GlobalManager, namespace: str) -> None:
    """REST shows what the caller may read of the Kubernetes API, and nothing to strangers."""
    models = f"/api/v1/namespaces/{namespace}/models"
    for path in ("/api/v1/nodes", models, "/metrics"):
        assert installation.code_of(manager, path) == 401
        assert installation.code_of(manager, path, LOCAL_CONTROLLER) == 403
    for path in ("/api/v1/nodes", models):
        assert installation.code_of(manager, path, ACCOUNT) == 200


def soon_seen() -> set[Right]:
    """Without `watch`: the audit log tells a watch when it ends, at the latest with its process."""
    return {right for right in granted() - UNSEEN if right.verb != "watch"}


def one_of_each(namespace: str) -> Iterator[Object]:
    """Of all kinds in both groups, and two whose names are taken."""
    for group in GROUPS:
        name = "digits" if group == "edgeai.io" else "sedna-digits"
        yield {**service(namespace, name=name), "apiVersion": f"{group}/v1alpha1"}
        yield from (model(each, namespace, group=group) for each in ("small", "big"))
        yield {
            "apiVersion": f"{group}/v1alpha1",
            "kind": "Dataset",
            "metadata": {"name": "pictures", "namespace": namespace},
            "spec": {"url": "/data/pictures.txt", "format": "txt", "nodeName": EDGE},
        }
        yield federation(namespace, group, "federation" if group == "edgeai.io" else "sedna-fed")
        yield learning(namespace, group, "learning" if group == "edgeai.io" else "sedna-learning")
        yield model("fleet", namespace, group=group)
    yield service(namespace, name="taken")
    yield service(namespace, name="seized")
    yield federation(namespace, "edgeai.io", "occupied")
    yield from training_jobs(namespace, "mnist")


def training_jobs(namespace: str, name: str, **policy: int) -> Iterator[Object]:
    """One of each kind. A job that ends is deleted at once."""
    for kind, container, type_ in TRAINING:
        one = {"name": container, "image": "registry.test/train"}
        replicas = {type_: {"template": {"spec": {"nodeName": EDGE, "containers": [one]}}}}
        field = "pytorchReplicaSpecs" if kind == "PyTorchJob" else "tfReplicaSpecs"
        yield {
            "apiVersion": f"{KUBEFLOW}/v1",
            "kind": kind,
            "metadata": {"name": f"{name}-{container}", "namespace": namespace},
            "spec": {field: replicas, "runPolicy": {"ttlSecondsAfterFinished": 0, **policy}},
        }


def federation(namespace: str, group: str, name: str) -> Object:
    spec = federated_learning_spec(1)
    spec["trainingWorkers"][0]["dataset"] = {"name": "pictures"}
    return {
        "apiVersion": f"{group}/v1alpha1",
        "kind": "FederatedLearningJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def learning(namespace: str, group: str, name: str) -> Object:
    spec = incremental_learning_spec(initialModel={"name": "small"}, dataset={"name": "pictures"})
    spec["deploySpec"]["model"] = {"name": "small", "hotUpdate": True}
    spec["deploySpec"]["publish"] = {"name": "fleet"}
    spec["outputDir"] = "s3://out/rounds"
    return {
        "apiVersion": f"{group}/v1alpha1",
        "kind": "IncrementalLearningJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def deploy_a_round(client: Client, job: Object) -> None:
    """So that its model is published."""
    root = f"s3://out/rounds/{job['metadata']['name']}-{job['metadata']['uid'][:8]}"
    deployed = {"round": 1, "model": "small", "url": f"{root}/1-0/model/m.onnx"}
    status = {"deployed": {**deployed, "time": "2026-01-01T00:00:00Z"}}
    client.patch(f"{path_of(job)}/status", {"status": status})


def occupy_names(client: Client, namespace: str) -> None:
    client.create(foreign_service("taken-cloud", namespace))
    client.create(foreign_deployment("seized-deployment-cloud", namespace))
    client.create(foreign_deployment("seized-deployment-edge", namespace))
    spec = {
        "automountServiceAccountToken": False,  # the namespace's is made only now
        "containers": [{"name": "main", "image": "registry.test/other"}],
    }
    metadata = {"name": "occupied-aggregation", "namespace": namespace}
    client.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def foreign_service(name: str, namespace: str, **metadata: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": {"ports": [{"port": 80}]},
    }


def foreign_deployment(name: str, namespace: str, **metadata: Any) -> Object:
    labels = {"app": name}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "main", "image": "registry.test/other"}]},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template},
    }


def made(namespace: str) -> tuple[str, ...]:
    return (
        f"/api/v1/namespaces/{namespace}/pods/federation-aggregation",
        f"/api/v1/namespaces/{namespace}/services/digits-cloud",
        f"/apis/apps/v1/namespaces/{namespace}/deployments/digits-deployment-edge",
        f"/api/v1/namespaces/{namespace}/secrets/digits-edge",
    )


def wait_until_made(client: Client, namespace: str) -> None:
    def check() -> bool:
        missing = [path for path in made(namespace) if client.find(path) is None]
        assert not missing, f"there is no {missing}"
        return True

    eventually("what the service needs", check)


def spoil_what_was_made(client: Client, namespace: str) -> None:
    """So that it is written again."""
    for path in made(namespace):
        client.patch(path, {"metadata": {"annotations": {SPEC_HASH: "another"}}})


def leave_what_nobody_wants(client: Client, namespace: str, job: Object) -> None:
    """As an earlier version might have made it for the job."""
    labels = client.get(made(namespace)[1])["metadata"]["labels"]
    owner = {key: job[key] for key in ("apiVersion", "kind")}
    owner |= {key: job["metadata"][key] for key in ("name", "uid")}
    metadata = {"labels": labels, "ownerReferences": [{**owner, "controller": True}]}
    left = [
        client.create(foreign_service("digits-old", namespace, **metadata)),
        client.create(foreign_deployment("digits-old", namespace, **metadata)),
    ]

    def check() -> bool:
        remaining = [path_of(each) for each in left if client.find(path_of(each))]
        assert not remaining, f"there is still {remaining}"
        return True

    eventually("the end of what nobody wants", check)


def train_elastically(client: Client, namespace: str) -> None:
    """Two TrainingJobs come, lose what somebody changes, and end."""
    for name, mode in (("by-ssh", "ssh"), ("by-exec", "kubexec")):
        client.create(elastic.training_job(namespace, name=name, launcherAttachMode=mode))
        elastic.wait_for_phase(client, namespace, "WorkersCreated", name)
        for pod in (f"{name}-worker-0", f"{name}-worker-1", f"{name}-launcher"):
            path = f"/api/v1/namespaces/{namespace}/pods/{pod}"
            eventually(f"the pod {pod}", functools.partial(client.find, path))
            set_ready(client, path, ready=True)
        elastic.wait_for_phase(client, namespace, "Running", name)
        spoil_what_the_launcher_has(client, namespace, f"{name}-launcher", f"{name}-config")
        end(client, namespace, f"{name}-launcher", 0)
        elastic.wait_for_phase(client, namespace, "Succeeded", name)


def spoil_what_the_launcher_has(client: Client, namespace: str, launcher: str, config: str) -> None:
    core = f"/api/v1/namespaces/{namespace}"
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    paths = {
        f"{core}/configmaps/{config}": SPEC_HASH,
        f"{core}/serviceaccounts/{launcher}": SPEC_HASH,
        f"{rbac}/roles/{launcher}": SPEC_HASH,
        f"{rbac}/rolebindings/{launcher}": SPEC_HASH,
        f"{core}/pods/{launcher}": NUDGE,
    }
    for path, annotation in paths.items():
        client.patch(path, {"metadata": {"annotations": {annotation: "another"}}})

    def check() -> bool:
        marks = {path: annotations_of(client.find(path)).get(at) for path, at in paths.items()}
        assert not {None, "another"} & {*marks.values()}, f"{marks}"
        return True

    eventually("what the launcher needs", check)


def annotations_of(object_: Object | None) -> Object:
    found: Object = {} if object_ is None else object_["metadata"].get("annotations", {})
    return found


def write_at_the_same_time(installation: DeployRights, namespace: str) -> None:
    """Until the GlobalManager has met a conflict for each kind, and read what is there."""
    client = installation.client
    rounds = iter(range(1000))

    def write() -> bool:
        number = next(rounds)
        reads = {
            Right(right.group, right.resource, "get"): right.group
            for right in granted()
            if right.group in (*GROUPS, KUBEFLOW)
        }
        waiting = {right for right in reads if right in installation.unseen()}
        for template in one_of_each(namespace):
            group = template["apiVersion"].partition("/")[0]
            plural = collection_of(template).rpartition("/")[2]
            if Right(group, plural, "get") not in waiting:
                continue
            name = f"{template['metadata']['name']}-{number}"
            other = {**template, "metadata": {"name": name, "namespace": namespace}}
            write_until_status(client, client.create(other))
        assert not waiting, f"none yet: {', '.join(' '.join(right) for right in sorted(waiting))}"
        return True

    eventually("a conflict of each kind", write, timeout_s=CONFLICT_S)


def write_until_status(client: Client, object_: Object) -> None:
    """So that the GlobalManager writes the status while somebody else writes."""
    for times in range(PATCHES):
        if object_.get("status"):
            return
        label = {"metadata": {"labels": {"times": str(times)}}}
        object_ = client.patch(path_of(object_), label)


def test_the_right_to_block_the_deletion_of_an_owner_is_needed(
    installation: DeployRights, namespace: str
) -> None:
    """Where the cluster checks it, as this one does."""
    client = installation.client
    job = client.create(service(namespace))
    owner = {
        **{key: job[key] for key in ("apiVersion", "kind")},
        **{key: job["metadata"][key] for key in ("name", "uid")},
        "blockOwnerDeletion": True,
    }
    child = foreign_service("child", namespace, ownerReferences=[owner])
    assert installation.refusal(child) == ""
    role = f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{ROLE}-edgeai.io"
    before = client.get(role)["rules"]
    less = [
        rule
        for rule in before
        if not any("finalizers" in resource for resource in rule["resources"])
    ]
    try:
        client.patch(role, {"rules": less})
        eventually("the refusal", lambda: "blockOwnerDeletion" in installation.refusal(child))
    finally:
        client.patch(role, {"rules": before})
