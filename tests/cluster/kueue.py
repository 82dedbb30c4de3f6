"""A real Kueue beside a control plane: its program, its definitions and its webhooks.

tests/kueue names its release as a Go module. The definitions are read from Go's cache of modules.
Kueue serves its webhooks on loopback, and its own management of certificates accepts ours.
"""

import base64
import http.client
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

import yaml

from edgeai.cli.api import Object
from tests.cluster.binaries import GoModule, print_path
from tests.cluster.controlplane import ControlPlane
from tests.cluster.programs import Program
from tests.support.certificates import openssl
from tests.support.ports import free_port

_MODULE: Final = GoModule(Path(__file__).parents[1] / "kueue", "kueue", "sigs.k8s.io/kueue")
OLDEST_MINOR: Final = 34
"""Kueue supports no older Kubernetes than 1.34."""
NAMESPACE: Final = "kueue-system"
API: Final = "kueue.x-k8s.io/v1beta2"
QUEUE: Final = "kueue.x-k8s.io/queue-name"
"""Label of a job: the LocalQueue of its namespace in which it waits."""
PRIORITY: Final = "kueue.x-k8s.io/priority-class"
"""Label of a job: its WorkloadPriorityClass."""
FRAMEWORKS: Final = ("kubeflow.org/pytorchjob", "kubeflow.org/tfjob")
_HOST: Final = "127.0.0.1"
_SECRET: Final = "kueue-webhook-server-cert"
_SERVICE: Final = "kueue-webhook-service"
# A webhook of a framework that is not enabled has no server, and would refuse every pod.
_ADMITTED: Final = frozenset(
    {"clusterqueues", "cohorts", "resourceflavors", "workloads"} | {"pytorchjobs", "tfjobs"}
)
_CONVERTED: Final = frozenset(
    {"clusterqueues", "cohorts", "localqueues", "multikueueclusters", "workloads"}
)
"""The definitions whose versions differ."""


def obtain() -> Path:
    """The directory of the program; the first build takes minutes. Raises: Unavailable"""
    return _MODULE.obtain()


class Kueue:
    """Args: directory: empty; gets the configuration, the key and the logs

    Raises: Unavailable when it cannot be built here
    """

    def __init__(self, plane: ControlPlane, directory: Path) -> None:
        self._plane, self._directory = plane, directory
        program = obtain() / "kueue"
        source = _MODULE.run_go("list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kueue").strip()
        self._source = Path(source) / "config" / "components"
        self._webhook_port, self._health_port = free_port(), free_port()
        self._certificate, self._key = directory / "tls.crt", directory / "tls.key"
        self._program = Program(
            [str(program), "--config", str(directory / "config.yaml")],
            log=directory / "kueue.log",
            environment={"KUBECONFIG": str(plane.kubeconfig)},
        )

    @contextmanager
    def running(self) -> Iterator[Self]:
        """From its readiness on."""
        self._make_certificate()
        self._write_configuration()
        self._install()
        try:
            self._program.start()
            self._program.eventually("readiness", self._is_ready)
            yield self
            self._program.check_alive()
        finally:
            self._program.stop()

    def logs(self) -> str:
        return self._program.last_words()

    def _is_ready(self) -> bool:
        connection = http.client.HTTPConnection(_HOST, self._health_port, timeout=5)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == http.client.OK
        except OSError:
            return False
        finally:
            connection.close()

    def _make_certificate(self) -> None:
        """One certificate that is its own authority, with the names that Kueue looks for."""
        names = f"DNS:kueue-ca,DNS:{_SERVICE}.{NAMESPACE}.svc,IP:{_HOST}"
        self._key.touch(mode=0o600)
        # The form of the keys that Kueue makes itself; it reads no other.
        openssl("genrsa", "-traditional", "-out", str(self._key), "2048")
        openssl(
            *("req", "-x509", "-new", "-key", str(self._key), "-subj", "/CN=kueue-ca"),
            *("-days", "365", "-addext", f"subjectAltName={names}"),
            *("-addext", "basicConstraints=critical,CA:TRUE", "-out", str(self._certificate)),
        )

    def _write_configuration(self) -> None:
        configuration = {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "namespace": NAMESPACE,
            "health": {"healthProbeBindAddress": f"{_HOST}:{self._health_port}"},
            "metrics": {"bindAddress": "0"},
            "webhook": {
                "host": _HOST,
                "port": self._webhook_port,
                "certDir": str(self._directory),
            },
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {
                "enable": True,
                "webhookServiceName": _SERVICE,
                "webhookSecretName": _SECRET,
            },
            "integrations": {"frameworks": [*FRAMEWORKS]},
            "featureGates": {"VisibilityOnDemand": False},  # it would serve on a fixed port
        }
        (self._directory / "config.yaml").write_text(yaml.safe_dump(configuration))

    def _install(self) -> None:
        """Its namespace, certificate, definitions and webhooks."""
        self._plane.client.create_named("Namespace", NAMESPACE)
        certificate, key = (
            base64.b64encode(path.read_bytes()).decode() for path in (self._certificate, self._key)
        )
        data = {"ca.crt": certificate, "ca.key": key, "tls.crt": certificate, "tls.key": key}
        metadata = {"name": _SECRET, "namespace": NAMESPACE}
        self._plane.client.create(
            {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}
        )
        definitions = [*_documents(self._source / "crd" / "bases")]
        for definition in definitions:
            if definition["spec"]["names"]["plural"] in _CONVERTED:
                webhook = {"clientConfig": self._client("/convert")}
                conversion = {**webhook, "conversionReviewVersions": ["v1"]}
                definition["spec"]["conversion"] = {"strategy": "Webhook", "webhook": conversion}
        self.apply(definitions)
        self.apply([self._configured(one) for one in _documents(self._source / "webhook")])

    def apply(self, documents: list[Object]) -> None:
        # The definitions are too large for the annotation of a client-side apply.
        arguments = ("apply", "--server-side", "-f", "-")
        done = self._plane.kubectl(*arguments, documents=documents)
        assert done.returncode == 0, done.stderr

    def _configured(self, configuration: Object) -> Object:
        """A webhook configuration with our address, for what is served."""
        name = f"kueue-{configuration['metadata']['name']}"
        webhooks = [
            {**one, "clientConfig": self._client(one["clientConfig"]["service"]["path"])}
            for one in configuration["webhooks"]
            if _ADMITTED & {*(plural for rule in one["rules"] for plural in rule["resources"])}
        ]
        return {**configuration, "metadata": {"name": name}, "webhooks": webhooks}

    def _client(self, path: str) -> dict[str, Any]:
        bundle = base64.b64encode(self._certificate.read_bytes()).decode()
        return {"url": f"https://{_HOST}:{self._webhook_port}{path}", "caBundle": bundle}


def _documents(folder: Path) -> Iterator[Object]:
    """The definitions and webhook configurations in the files of a folder."""
    for file in sorted(folder.glob("*.yaml")):
        for document in yaml.safe_load_all(file.read_text()):
            if document and document.get("kind", "").endswith(("Definition", "Configuration")):
                yield document


# ---- objects of Kueue ----


def flavor(name: str, **node_labels: str) -> Object:
    """A kind of nodes."""
    return {
        "apiVersion": API,
        "kind": "ResourceFlavor",
        "metadata": {"name": name},
        "spec": {"nodeLabels": node_labels} if node_labels else {},
    }


def cluster_queue(name: str, *, flavor: str, cpu: int, **spec: Any) -> Object:
    """A quota of processors."""
    resources = [{"name": "cpu", "nominalQuota": cpu}]
    group = {
        "coveredResources": ["cpu"],
        "flavors": [{"name": flavor, "resources": resources}],
    }
    return {
        "apiVersion": API,
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": {"namespaceSelector": {}, "resourceGroups": [group], **spec},
    }


def local_queue(namespace: str, name: str, *, cluster_queue: str) -> Object:
    return {
        "apiVersion": API,
        "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"clusterQueue": cluster_queue},
    }


def priority(name: str, value: int) -> Object:
    return {
        "apiVersion": API,
        "kind": "WorkloadPriorityClass",
        "metadata": {"name": name},
        "value": value,
        "description": "of a test",
    }


if __name__ == "__main__":
    print_path(obtain)
