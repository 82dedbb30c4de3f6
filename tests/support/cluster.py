"""A whole Kubernetes: control plane, DNS and nodes that run containers.

Called by the tests that need nodes. All of it ends with the run
that started it, also when that is killed; the next run removes what then remains on disk.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Final, Self, TypeVar

from edgeai.cli.api import ApiError, Object
from tests.cluster import binaries, packages
from tests.cluster.binaries import say
from tests.cluster.containerd import CGROUP_PARENT, container_ids
from tests.cluster.controlplane import ControlPlane
from tests.cluster.dns import Dns
from tests.cluster.images import SANDBOX, Images, Recipe
from tests.cluster.machine import Machine
from tests.cluster.network import Network
from tests.support.node import PROXY_USER, Node, kubelet_user
from tests.support.waiting import PATIENCE_S, POLL_S, eventually

T = TypeVar("T")

CLOUD: Final = "cloud0"
EDGES: Final = ("edge0", "edge1")
NODES: Final = (CLOUD, *EDGES)
# As KubeEdge labels its edge nodes.
EDGE_LABELS: Final = {"node-role.kubernetes.io/edge": "", "node-role.kubernetes.io/agent": ""}
PREFIX: Final = "edgeai-cluster-"
_CGROUPS: Final = Path("/sys/fs/cgroup")
_TEMPORARY: Final = Path(tempfile.gettempdir())


def prepared(recipes: Sequence[Recipe] = ()) -> "Cluster":
    """One whose nodes have the images of `recipes`, ready to be started.

    The first time this takes minutes, then seconds. Raises: Unavailable
    """
    packages.obtain()
    programs = binaries.obtain([*binaries.PROGRAMS, *binaries.NODE_PROGRAMS])
    return Cluster(programs, archive=Images().archive(recipes))


class NotStarted(Exception):
    """Has the logs of all that was started, and why the start failed."""


class Cluster:
    """Args:
    programs: directory of Kubernetes' programs, those of nodes too
    archive: images that nodes have from the start (images.py)
    visible: further directories that the machines of nodes see
    """

    def __init__(self, programs: Path, *, archive: Path, visible: Sequence[Path] = ()) -> None:
        self.programs = programs
        self._archive = archive
        self._visible = (programs, archive.parents[1], *visible)  # other archives are beside it
        self._owned = ExitStack()
        self._control_planes: list[ControlPlane] = []  # one, once it was made
        self.nodes: dict[str, Node] = {}
        self.names: frozenset[str] = frozenset()
        """Of its directory and its network interface, on this machine."""

    def start(self, *, tries: int = 2) -> None:
        """Until all nodes are Ready. Raises: NotStarted when the last try fails"""
        for _ in range(tries - 1):
            try:
                return self._try_to_start()
            except NotStarted as error:
                say(f"the cluster is started once more, since a try failed: {error}")
        return self._try_to_start()

    @contextmanager
    def running(self) -> Iterator[Self]:
        """Started, and stopped afterwards. Raises: NotStarted, ProgramEnded"""
        self.start()
        try:
            yield self
            self.check_alive()
        finally:
            self.stop()

    def _try_to_start(self) -> None:
        with ExitStack() as stack:
            try:
                self._start(stack)
            except Exception as error:
                logs = self.logs()  # before they are removed
                # The reason comes last, since reports of a run often keep its end only.
                raise NotStarted(f"{logs}\n\n{error!r}") from error
            self._owned = stack.pop_all()

    def stop(self) -> None:
        self._owned.close()

    def _start(self, stack: ExitStack) -> None:
        remove_leftovers()
        directory = stack.enter_context(_run_directory())
        self._network = Network(directory)
        self._network.start()
        self.names = frozenset({directory.name, self._network.name_on_host})
        stack.callback(self._network.stop)
        self._start_control_plane(_made(directory / "control-plane"), stack)
        machines = [self._start_machine(_made(directory / name), stack) for name in NODES]
        self._network.connect(*machines)
        # In this thread: the kernel ends programs with the thread that started them.
        self.nodes = {machine.name: self._started_node(machine, stack) for machine in machines}
        self.load(self._archive)
        self._wait_until_nodes_are_ready()
        account = "/api/v1/namespaces/default/serviceaccounts/default"  # no pod without it
        self.eventually("the account of pods", lambda: self.client.find(account))

    def _start_control_plane(self, directory: Path, stack: ExitStack) -> None:
        users = {kubelet_user(name): "system:nodes" for name in NODES}
        self.control_plane = ControlPlane(
            self.programs,
            directory,
            address=self._network.host,
            users={PROXY_USER: "", **users},
        )
        self._control_planes = [self.control_plane]
        stack.callback(self.control_plane.stop)
        self.control_plane.start()
        self.client = self.control_plane.client
        self._dns = Dns(self.client, address=self._network.host, directory=directory)
        stack.callback(self._dns.stop)
        self._dns.start()

    def _start_machine(self, directory: Path, stack: ExitStack) -> Machine:
        machine = Machine(directory.name, directory, visible=self._visible)
        stack.callback(machine.stop)
        machine.start()
        return machine

    def _started_node(self, machine: Machine, stack: ExitStack) -> Node:
        node = self._node(machine)
        stack.callback(node.stop)
        node.start()
        return node

    def _node(self, machine: Machine) -> Node:
        return Node(
            machine,
            binaries=self.programs,
            control_plane=self.control_plane,
            network=self._network,
            sandbox_image=SANDBOX,
        )

    def _wait_until_nodes_are_ready(self) -> None:
        for name in NODES:
            self.wait_until_ready(name)
        self._label_edges()

    def _label_edges(self) -> None:
        labels = {"metadata": {"labels": EDGE_LABELS}}
        for name in EDGES:
            label = partial(self.client.patch, f"/api/v1/nodes/{name}", labels)
            self.eventually(f"labels of node {name}", label)

    # ---- use -----------------------------------------------------------------------------------

    def load(self, archive: Path) -> None:
        """Images for all nodes, from Images().archive."""
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda node: node.load(archive), self.nodes.values()))

    def cut_off(self, name: str) -> None:
        """Take the node off the network; what runs there runs on."""
        self._network.cut_off(self.nodes[name].machine)

    def reconnect(self, name: str) -> None:
        self._network.reconnect(self.nodes[name].machine)

    def lose_power(self, name: str) -> None:
        """All that runs on the node is killed at once."""
        node = self.nodes[name]
        node.lose_power()
        for container in container_ids(node.machine.directory):
            _remove_cgroups(container)

    def log_of(self, pod: Object) -> str:
        """What its one container printed since its last start."""
        metadata = pod["metadata"]
        arguments = ("logs", f"--namespace={metadata['namespace']}", metadata["name"])
        return self.control_plane.kubectl(*arguments).stdout

    @contextmanager
    def isolated(self, *names: str, edge_port: int) -> Iterator[None]:
        """For as long as this lasts, pods of these nodes reach `edge_port` of pods elsewhere, and
        nothing else outside their node.
        """
        with ExitStack() as stack:
            for name in names:
                machine = self.nodes[name].machine
                stack.callback(self._network.open_up, machine)
                api_port = self.control_plane.port
                self._network.isolate(machine, edge_port=edge_port, api_port=api_port)
            yield

    def wait_until_ready(self, name: str, *, ready: bool = True) -> None:
        """Until the API says that the node is Ready, or is not."""

        def check() -> bool:
            status = _ready_condition(self.client.find(f"/api/v1/nodes/{name}"))
            assert (status == "True") is ready, f"its condition Ready is {status}"
            return True

        self.eventually(f"node {name} to be {'' if ready else 'not '}Ready", check)

    def eventually(
        self,
        what: str,
        check: Callable[[], T | None],
        *,
        timeout_s: float = PATIENCE_S,
        poll_s: float = POLL_S,
    ) -> T:
        """As `waiting.eventually`, while all programs run. An API server that is busy or away is
        asked again.
        """

        def check_both() -> T | None:
            self.check_alive()
            try:
                return check()
            except (ApiError, OSError, HTTPException) as error:
                raise AssertionError(repr(error)) from error

        return eventually(what, check_both, timeout_s=timeout_s, poll_s=poll_s)

    def check_alive(self) -> None:
        """Raises: ProgramEnded"""
        self.control_plane.check_alive()
        self._dns.check_alive()
        for node in self.nodes.values():
            node.check_alive()

    def logs(self) -> str:
        shown = [each.logs() for each in self._control_planes]
        return "\n\n".join([*shown, *(node.logs() for node in self.nodes.values())])


def _ready_condition(node: Object | None) -> str:
    conditions = (node or {}).get("status", {}).get("conditions", ())
    found: Sequence[str] = [each["status"] for each in conditions if each["type"] == "Ready"]
    return found[0] if found else "missing"


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory


# ---- what is on disk -------------------------------------------------------------------------


@contextmanager
def _run_directory() -> Iterator[Path]:
    """A short path: sockets are in it. Whoever holds its lock is using it."""
    with ExitStack() as held:
        with _locked(_TEMPORARY):  # else somebody may take it for a leftover
            directory = Path(tempfile.mkdtemp(prefix=PREFIX))
            held.enter_context(_locked(directory))
        try:
            yield directory
        finally:
            _remove(directory)


def remove_leftovers() -> None:
    """Directories and cgroups of runs that were killed."""
    with _locked(_TEMPORARY):
        for directory in _TEMPORARY.glob(f"{PREFIX}*"):
            with suppress(BlockingIOError, FileNotFoundError), _locked(directory, wait=False):
                _remove(directory)


@contextmanager
def _locked(directory: Path, *, wait: bool = True) -> Iterator[None]:
    """Raises: BlockingIOError when another holds the lock, and this is not to wait"""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _remove(directory: Path) -> None:
    for machine in directory.iterdir():
        for container in container_ids(machine):
            _remove_cgroups(container)
    shutil.rmtree(directory)


def _remove_cgroups(container: str) -> None:
    """In the hierarchy of version 2, or in each of version 1; its processes have ended."""
    below = f"{CGROUP_PARENT}/{container}"
    for path in (_CGROUPS / below, *_CGROUPS.glob(f"*/{below}")):
        with suppress(FileNotFoundError):
            path.rmdir()
        with suppress(OSError):  # other containers are there, of whomever
            path.parent.rmdir()
