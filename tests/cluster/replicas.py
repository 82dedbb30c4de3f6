"""Two GlobalManagers in one namespace: both serve, one leads.

Each stands behind a line of its own to the API server, on which its writes are seen, and which
can be cut. They watch their own namespace alone: what remains of another test's namespace, which
is deleted after that test has ended, would give them work.
"""

import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from tests.cluster.controlplane import ControlPlane
from tests.cluster.lines import ApiLine
from tests.cluster.samples import create_models
from tests.support.manager import GlobalManager
from tests.support.waiting import PATIENCE_S, eventually

NAMES: Final = ("east", "west")


class Replica:
    """One GlobalManager and its line to the API server.

    Args:
        namespace: it watches this one, and shares its Lease and key there
        directory: to be made; gets its kubeconfig, token file and log
        tokens: of edge nodes, by name
        flags: further ones
    """

    def __init__(
        self,
        name: str,
        *,
        control_plane: ControlPlane,
        namespace: str,
        directory: Path,
        tokens: Mapping[str, str],
        flags: Sequence[str],
    ) -> None:
        self.name = name
        self.line = ApiLine(control_plane.url, ca=control_plane.ca)
        self._token = control_plane.token
        self._namespace = namespace
        self._directory = directory
        self._tokens = tokens
        self._flags = flags

    def launch(self, stack: ExitStack) -> None:
        stack.enter_context(self.line)
        self._directory.mkdir()
        kubeconfig = self._directory / "kubeconfig"
        self.manager = GlobalManager(
            kubeconfig=self.line.write_kubeconfig(kubeconfig, token=self._token),
            system_namespace=self._namespace,
            directory=self._directory,
            tokens=self._tokens,
            flags=("--replica-name", self.name, "--namespace", self._namespace, *self._flags),
        )
        self.manager.launch()
        stack.callback(self.manager.stop, signal.SIGKILL)


class Replicas:
    """Args:
    directory: theirs are made in it
    tokens: of edge nodes, by name
    flags: of both
    """

    def __init__(
        self,
        control_plane: ControlPlane,
        namespace: str,
        directory: Path,
        *,
        tokens: Mapping[str, str],
        flags: Sequence[str] = (),
    ) -> None:
        self.client, self.namespace = control_plane.client, namespace
        self.replicas = tuple(
            Replica(
                name,
                control_plane=control_plane,
                namespace=namespace,
                directory=directory / name,
                tokens=tokens,
                flags=flags,
            )
            for name in NAMES
        )

    @contextmanager
    def running(self) -> Iterator[None]:
        """Both are ready, one leads, and the Models of a job are there."""
        create_models(self.client, self.namespace)
        with ExitStack() as stack:
            for replica in self.replicas:
                replica.launch(stack)
            try:
                for replica in self.replicas:
                    replica.manager.wait_until_ready()
                self.roles()
                yield
            finally:
                for replica in self.replicas:  # shown when the test failed
                    replica.line.mend()
                    print(f"--- {replica.name}\n{replica.manager.logs()}")

    def leaders_lease(self) -> dict[str, Any]:
        leases = f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases"
        found = self.client.find(f"{leases}/edgeai-globalmanager") or {}
        spec: dict[str, Any] = found.get("spec") or {}
        return spec

    def leader(self) -> Replica | None:
        name, _, _ = str(self.leaders_lease().get("holderIdentity") or "").rpartition("_")
        return next((each for each in self.replicas if each.name == name), None)

    def roles(self) -> tuple[Replica, Replica]:
        """(leader, follower)"""
        leader = self._wait_for("a leader", self.replicas, timeout_s=PATIENCE_S)
        (follower,) = (each for each in self.replicas if each is not leader)
        return leader, follower

    def wait_for_leader(self, expected: Replica, *, timeout_s: float) -> None:
        self._wait_for(f"{expected.name} to lead", (expected,), timeout_s=timeout_s)

    def _wait_for(self, what: str, accepted: Sequence[Replica], *, timeout_s: float) -> Replica:
        def check() -> Replica:
            leader = self.leader()
            assert leader is not None, f"the Lease is {self.leaders_lease()}"
            assert leader in accepted, f"{leader.name} leads"
            return leader

        return eventually(what, check, timeout_s=timeout_s)
