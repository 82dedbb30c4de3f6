"""A Kubernetes control plane of its own: etcd, API server, controller manager and scheduler.

Started by the fixtures of this folder, on free ports, in a directory of its own. Without nodes it
is on loopback, and pods that are made stay pending; cluster.py gives it nodes that run them.
"""

import base64
import json
import secrets
import signal
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Self

import yaml

from tests.cluster.programs import STOP_S, Program
from tests.support.certificates import Authority, new_key, openssl
from tests.support.client import Client
from tests.support.kubeconfig import kubeconfig, write_private
from tests.support.manager import SYSTEM_NAMESPACE
from tests.support.ports import free_port
from tests.support.waiting import eventually

_HOST: Final = "127.0.0.1"
SERVICES: Final = "10.96.0.0/16"
CRDS: Final = Path(__file__).parents[2] / "deploy" / "chart" / "definitions"
_FIRST_SERVICE: Final = "10.96.0.1"  # the API server's own
_ADVERTISED: Final = "192.0.2.1"  # must not be loopback; nobody connects to it, without nodes
_EVERYTHING: Final = dict.fromkeys(("key", "range_end"), base64.b64encode(b"\0").decode())
_REGISTRY: Final = "/registry/"
# The control plane's own heartbeats.
_HEARTBEATS: Final = tuple(f"/registry/{name}leases/" for name in ("", "master", "peerserver"))

_ADMIN: Final = "admin"
_NOBODY: Final[Mapping[str, str]] = MappingProxyType({})
_HEARD_FROM_NODE_S: Final = 10  # without a word for so long, a node is NotReady
AUDITED: Final = "system:serviceaccount:edgeai-system:globalmanager"
_AUDIT_POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "users": [AUDITED]}, {"level": "None"}],
}

Object = dict[str, Any]


class ControlPlane:
    """Args:
    binaries: directory of the programs (tests.cluster.binaries)
    directory: empty; gets keys, data and logs
    address: where nodes find the API server; None: there are none, it is on loopback
    users: whom it knows besides the admin: name -> group, which may be ""
    watches_nodes: whether a node without heartbeats is NotReady and tainted; always with nodes
    api_server_flags, controller_flags: further ones of the API server, the controller manager
    """

    def __init__(
        self,
        binaries: Path,
        directory: Path,
        *,
        address: str | None = None,
        users: Mapping[str, str] = _NOBODY,
        watches_nodes: bool = False,
        api_server_flags: Sequence[str] = (),
        controller_flags: Sequence[str] = (),
    ) -> None:
        self._binaries = binaries
        self._directory = directory
        self._address = address or _HOST
        self._has_nodes = address is not None
        self._watches_nodes = watches_nodes or self._has_nodes
        self._further_api_server_flags = api_server_flags
        self._controller_flags = controller_flags
        self._groups = {_ADMIN: "system:masters", **users}
        self._tokens = {user: secrets.token_hex(16) for user in self._groups}
        self.token = self._tokens[_ADMIN]
        self._etcd_url = f"http://{_HOST}:{free_port()}"
        self.port = free_port(self._address)
        self.url = f"https://{self._address}:{self.port}"
        self.ca = directory / "ca.crt"
        self.kubeconfig = directory / "kubeconfig"
        self._programs: list[Program] = []

    # ---- life ----------------------------------------------------------------------------------

    def start(self, *, with_controllers: bool = True) -> None:
        """Until the API server is ready. Raises: AssertionError with the log of what failed"""
        self._make_keys()
        self._write_credentials()
        self.client = self.client_of(_ADMIN)
        self._etcd = self._program("etcd", self._etcd_flags())
        self._api_server = self._program("kube-apiserver", self._api_server_flags())
        self._start_program(self._etcd)
        self._start_program(self._api_server)
        self.wait_until_ready()
        if with_controllers:
            self._start_controllers()

    @contextmanager
    def running(self, *, with_controllers: bool = True) -> Iterator[Self]:
        """Started, and stopped afterwards. Raises: ProgramEnded where one has ended meanwhile"""
        try:
            self.start(with_controllers=with_controllers)
            yield self
            self.check_alive()
        finally:
            self.stop()

    def _start_controllers(self) -> None:
        for name, flags in (
            ("kube-controller-manager", self._controller_manager_flags()),
            ("kube-scheduler", self._client_flags()),
        ):
            self._start_program(self._program(name, flags))

    def stop(self) -> None:
        for program in reversed(self._programs):  # etcd last
            program.stop()
        self._programs.clear()

    def restart_api_server(self, *, within_s: float = STOP_S) -> None:
        """Ended, or killed when that takes too long, and started again on the same port."""
        self._api_server.stop(within_s=within_s)
        self.start_api_server()

    def kill_api_server(self) -> None:
        self._api_server.stop(signal.SIGKILL)

    def start_api_server(self) -> None:
        self._api_server.start()
        self.wait_until_ready()

    @contextmanager
    def frozen_api_server(self) -> Iterator[None]:
        """It keeps its connections, the kernel takes new ones, and nobody is answered."""
        self._api_server.send(signal.SIGSTOP)
        try:
            yield
        finally:
            self._api_server.send(signal.SIGCONT)

    def wait_until_ready(self) -> None:
        def is_ready() -> bool:
            self._etcd.check_alive()
            return self.client.is_ready()

        self._api_server.eventually("readiness", is_ready)

    def check_alive(self) -> None:
        """Raises: ProgramEnded"""
        for program in self._programs:
            program.check_alive()

    def pids(self) -> dict[str, int]:
        """The processes that run, by the names of their programs."""
        return {program.name: program.pid for program in self._programs}

    def logs(self) -> str:
        return "\n\n".join(f"--- {each.name}\n{each.last_words()}" for each in self._programs)

    def _program(self, name: str, flags: list[str]) -> Program:
        argv = [str(self._binaries / name), *flags]
        return Program(argv, log=self._directory / f"{name}.log")

    def _start_program(self, program: Program) -> None:
        program.start()
        self._programs.append(program)

    # ---- use -----------------------------------------------------------------------------------

    def kubectl(
        self, *arguments: str, documents: list[Object] | str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as admin; `documents` go to its stdin, for `-f -`."""
        text = documents if isinstance(documents, str) else yaml.safe_dump_all(documents)
        command = [
            *(str(self._binaries / "kubectl"), "--kubeconfig", str(self.kubeconfig)),
            *("--cache-dir", str(self._directory / "kubectl-cache"), *arguments),
        ]
        return subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=60, check=False
        )

    def install_crds(self, definitions: Path | list[Object] = CRDS) -> None:
        """Apply them as a user would, until they are established.

        Args:
            definitions: documents, or a file or folder
        """
        is_path = isinstance(definitions, Path)
        source = ("--recursive", "-f", str(definitions)) if is_path else ("-f", "-")
        documents = "" if isinstance(definitions, Path) else definitions
        done = self.kubectl("apply", *source, documents=documents)
        assert done.returncode == 0, done.stderr

        def wait() -> bool:
            flags = ("--for=condition=Established", "--timeout=10s")
            done = self.kubectl("wait", *flags, *source, documents=documents)
            assert done.returncode == 0, done.stderr
            return True

        # kubectl fails as long as the API server has set no condition of a new definition.
        eventually("established definitions", wait)

    def prepare(self, *nodes: str) -> None:
        """For a GlobalManager: the CRDs, its namespace, and Nodes of these names."""
        self.install_crds()
        self.client.create_named("Namespace", SYSTEM_NAMESPACE)
        self.client.create_named("Node", *nodes)

    def registry(self) -> dict[str, int]:
        """What etcd holds: key -> revision of its last write; heartbeats left out."""
        pairs = self._ask_etcd("range", keys_only=True, **_EVERYTHING).get("kvs", ())
        written = {base64.b64decode(e["key"]).decode(): int(e["mod_revision"]) for e in pairs}
        return {
            key: revision
            for key, revision in written.items()
            if key.startswith(_REGISTRY) and not key.startswith(_HEARTBEATS)
        }

    def compact(self) -> None:
        """Have etcd forget what was before now: no watch can start there any more."""
        now = self._ask_etcd("range", count_only=True, **_EVERYTHING)["header"]["revision"]
        self._ask_etcd("compaction", revision=now, physical=True)

    def _ask_etcd(self, what: str, **body: Any) -> Object:
        request = urllib.request.Request(
            f"{self._etcd_url}/v3/kv/{what}", data=json.dumps(body).encode(), method="POST"
        )
        with urllib.request.urlopen(request, timeout=20) as answer:
            told: Object = json.load(answer)
            return told

    def audit(self) -> list[Object]:
        """What AUDITED has asked for so far, as events of audit.k8s.io."""
        path = self._directory / "audit.log"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    # ---- credentials and flags -----------------------------------------------------------------

    def _make_keys(self) -> None:
        authority = Authority(self._directory)
        names = f"IP:{self._address},IP:{_FIRST_SERVICE},DNS:kubernetes.default.svc"
        self._server = authority.issue(
            "server", subject="/CN=kube-apiserver", alternative=names, usage="serverAuth"
        )
        admin = "/O=system:masters/CN=kube-apiserver-kubelet-client"
        self._kubelet_client = authority.issue("kubelet-client", subject=admin)
        self._account_key = new_key(self._directory / "serviceaccount.key")
        self._account_public_key = self._directory / "serviceaccount.pub"
        openssl(
            *("pkey", "-in", str(self._account_key), "-pubout"),
            *("-out", str(self._account_public_key)),
        )

    def _write_credentials(self) -> None:
        tokens = self._directory / "tokens.csv"
        tokens.touch(mode=0o600)
        lines = [
            f'{self._tokens[user]},{user},{user},"{self._groups[user]}"' for user in self._groups
        ]
        tokens.write_text("\n".join(lines))
        (self._directory / "audit-policy").write_text(yaml.safe_dump(_AUDIT_POLICY))
        self.write_kubeconfig(self.kubeconfig)

    def client_of(self, user: str) -> Client:
        """Args: user: one of `users`"""
        context = ssl.create_default_context(cafile=self.ca)
        return Client(self.url, token=self._tokens[user], context=context)

    def write_kubeconfig(self, path: Path, *, user: str = _ADMIN) -> None:
        """For one of `users`, to a file that only its owner reads."""
        write_private(path, self._kubeconfig(user))

    def write_account_kubeconfig(self, path: Path, namespace: str, account: str) -> None:
        """For a ServiceAccount."""
        token = self.client.account_token(namespace, account)
        write_private(path, kubeconfig(self.url, token=token, ca=self.ca))

    def write_certificate_kubeconfig(self, path: Path) -> None:
        """For an administrator who shows a client certificate and no token."""
        config = self._kubeconfig(_ADMIN)
        certificate, key = map(str, self._kubelet_client)
        config["users"][0]["user"] = {"client-certificate": certificate, "client-key": key}
        write_private(path, config)

    def _kubeconfig(self, user: str) -> Object:
        return kubeconfig(self.url, token=self._tokens[user], ca=self.ca)

    def _etcd_flags(self) -> list[str]:
        peer = f"http://{_HOST}:{free_port()}"
        return [
            *("--data-dir", str(self._directory / "etcd")),
            *("--listen-client-urls", self._etcd_url, "--advertise-client-urls", self._etcd_url),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", f"default={peer}", "--unsafe-no-fsync", "--log-level", "warn"),
        ]

    def _api_server_flags(self) -> list[str]:
        return [
            f"--etcd-servers={self._etcd_url}",
            f"--bind-address={self._address}",
            f"--secure-port={self.port}",
            f"--advertise-address={self._address if self._has_nodes else _ADVERTISED}",
            f"--tls-cert-file={self._server.certificate}",
            f"--tls-private-key-file={self._server.key}",
            f"--token-auth-file={self._directory / 'tokens.csv'}",
            "--authorization-mode=Node,RBAC",
            f"--service-cluster-ip-range={SERVICES}",
            f"--service-account-key-file={self._account_public_key}",
            f"--service-account-signing-key-file={self._account_key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--allow-privileged=true",
            f"--audit-policy-file={self._directory / 'audit-policy'}",
            f"--audit-log-path={self._directory / 'audit.log'}",
            # The second one as some distributions have it: who blocks an owner's deletion needs
            # the right to.
            "--enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement",
            "--kubelet-preferred-address-types=InternalIP",
            f"--client-ca-file={self.ca}",
            f"--kubelet-client-certificate={self._kubelet_client.certificate}",
            f"--kubelet-client-key={self._kubelet_client.key}",
            *self._further_api_server_flags,
        ]

    def _controller_manager_flags(self) -> list[str]:
        return [
            *self._client_flags(),
            f"--root-ca-file={self.ca}",
            f"--service-account-private-key-file={self._account_key}",
            "--use-service-account-credentials",
            *self._node_lifecycle_flags(),
            *self._controller_flags,
        ]

    def _node_lifecycle_flags(self) -> list[str]:
        if not self._watches_nodes:  # no kubelets, whose silence it would write into every Node
            return ["--controllers=*,-nodelifecycle"]
        return [
            "--node-monitor-period=1s",
            f"--node-monitor-grace-period={_HEARD_FROM_NODE_S}s",
            "--node-startup-grace-period=20s",
        ]

    def _client_flags(self) -> list[str]:
        return [f"--kubeconfig={self.kubeconfig}", "--leader-elect=false", "--secure-port=0"]
