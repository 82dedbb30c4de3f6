"""A cluster, sessions and a server to ask about them, all in memory and on a real socket."""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from aiohttp import ClientSession
from prometheus_client import CollectorRegistry, Counter

from common.clock import SYSTEM_CLOCK
from edgeai.api.resources import Object, ObjectRef, ResourceType
from edgeai.api.status import mapping
from edgeai.ids import NodeName, Uid
from edgeai.kube.client import Beginning
from globalmanager.cache.health import Health
from globalmanager.edge.identity.remembered import Remembered
from globalmanager.edge.sessions.registry import SessionInfo
from globalmanager.edge.sessions.relay import RelayInfo
from globalmanager.engine.jobs import Owned
from globalmanager.ha.contacts import Contacts
from globalmanager.kinds import KINDS
from globalmanager.rest.access import Access, KubernetesAccess, OpenAccess
from globalmanager.rest.api import Api
from globalmanager.rest.console.actions import CallersApi
from globalmanager.rest.console.board import Board
from globalmanager.rest.console.handlers import Console
from globalmanager.rest.console.live import Live
from globalmanager.rest.console.login import Logins
from globalmanager.rest.console.past import Past
from globalmanager.rest.console.proxy import ProxyLogin
from globalmanager.rest.console.recent import Recent
from globalmanager.rest.console.visits import Visits
from globalmanager.rest.server import RestLimits, RestMetrics, RestServer
from globalmanager.rest.streams import StreamLimits
from tests.support.clock import Clock

JI = "jointinferenceservices"
TYPES = [
    ResourceType(group, "v1alpha1", plural, kind)
    for group in ("sedna.io", "edgeai.io")
    for plural, kind in ((JI, "JointInferenceService"), ("models", "Model"))
] + [ResourceType("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob")]
SINCE = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def object_of(
    name: str, *, plural: str = JI, group: str = "edgeai.io", namespace: str = "default"
) -> Object:
    (kind,) = {type_.kind for type_ in TYPES if type_.plural == plural}
    return {
        "apiVersion": f"{group}/v1alpha1",
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{group}-{name}",
            "generation": 3,
            "managedFields": [{"manager": "kubectl"}],
        },
        "spec": {"a": 1},
        "status": {"phase": "Running", "workers": {"w": {"status": "running"}}},
    }


class JobCache:
    def __init__(self) -> None:
        self.objects: list[Object] = []
        self.slices: dict[str, Object] = {}
        self.node_names = ["node-1", "node-2"]
        self.node_labels: dict[str, dict[str, str]] = {}
        self.pods_of: dict[ObjectRef, list[Object]] = {}
        self.children_of: dict[ObjectRef, dict[ObjectRef, Object]] = {}
        self.scalers_of: dict[ObjectRef, dict[ObjectRef, Object]] = {}

    def get(self, ref: ObjectRef) -> Object | None:
        for object_ in self.list(str(ref.type), ref.namespace):
            if object_["metadata"]["name"] == ref.name:
                return object_
        return None

    def list(self, plural: str, namespace: str = "") -> tuple[Object, ...]:
        return tuple(
            object_
            for object_ in self.objects
            if plural == resource_of(object_)
            and namespace in ("", object_["metadata"]["namespace"])
        )

    def slice(self, _job: Object, name: str) -> Object | None:
        return self.slices.get(name)

    def nodes(self) -> tuple[Object, ...]:
        return tuple(
            {"metadata": {"name": name, "labels": self.node_labels.get(name)}}
            for name in self.node_names
        )

    def owned(self, ref: ObjectRef) -> Owned | None:
        pods = tuple(self.pods_of.get(ref, ()))
        return Owned(frozenset(), self.children_of.get(ref, {}), pods) if self.get(ref) else None

    def pods_on(self, node: NodeName, namespace: str) -> tuple[Object, ...]:
        return tuple(
            pod
            for pods in self.pods_of.values()
            for pod in pods
            if mapping(pod.get("spec")).get("nodeName") == node
            and namespace in ("", pod["metadata"].get("namespace"))
        )

    def scalers(self, ref: ObjectRef) -> Mapping[ObjectRef, Object]:
        return self.scalers_of.get(ref, {})


def resource_of(object_: Object) -> str:
    group = object_["apiVersion"].partition("/")[0]
    (plural,) = {type_.plural for type_ in TYPES if type_.kind == object_["kind"]}
    return f"{plural}.{group}"


class Sessions:
    def __init__(self) -> None:
        self.live: list[SessionInfo] = []
        self.desired: dict[NodeName, int] = {}
        self.problems: dict[NodeName, str] = {}

    def snapshot(self) -> Iterable[SessionInfo]:
        return self.live

    def problem(self, node: NodeName) -> str:
        return self.problems.get(node, "")

    def desired_count(self, node: NodeName) -> int:
        return self.desired.get(node, 0)


def session_info(**fields: Any) -> SessionInfo:
    """A live session with these fields."""
    usual: dict[str, Any] = {
        "node": "node-1",
        "session": "s",
        "ledger_id": "ledger",
        "protocol_version": 1,
        "release": "0.1.0",
        "desired": 0,
        "held": 0,
        "synced": True,
        "opened_at": SINCE,
        "last_report_at": SINCE,
    }
    return SessionInfo(**{**usual, **fields})


class NoChanges(CallersApi):
    """For tests in which nobody changes a job."""

    def __init__(self) -> None:
        """Without a client."""

    async def patch(self, token: str, ref: ObjectRef, patch: Mapping[str, Any]) -> None:
        raise AssertionError(f"{ref} is changed")

    async def delete(self, token: str, ref: ObjectRef, uid: Uid) -> None:
        raise AssertionError(f"{ref} is deleted")

    async def events(self, token: str, namespace: str, uid: Uid, limit: int) -> Beginning:
        raise AssertionError(f"events of {uid} are read")

    async def log_lines(self, token: str, pod: ObjectRef, **_: Any) -> AsyncGenerator[bytes, None]:
        yield b""
        raise AssertionError(f"the log of {pod} is read")


class Relays:
    def __init__(self) -> None:
        self.open: dict[str, RelayInfo] = {}

    def info(self, node: NodeName) -> RelayInfo | None:
        return self.open.get(node)


def board_of(
    cluster: JobCache,
    sessions: Sessions | None = None,
    *,
    relays: Relays | None = None,
    contacts: Contacts | None = None,
) -> Board:
    return Board(
        cache=cluster,
        sessions=sessions or Sessions(),
        relays=relays or Relays(),
        contacts=contacts or Contacts(Clock(SINCE.timestamp())),
        types=TYPES,
    )


class RestSide:
    def __init__(
        self,
        access: Access | None = None,
        *,
        limits: RestLimits | None = None,
        callers_api: CallersApi | None = None,
        past: Past | None = None,
        token_header: str = "",
        **stream_limits: float,
    ) -> None:
        self.access = access or OpenAccess()
        self.cluster = JobCache()
        self.sessions = Sessions()
        self.relays = Relays()
        self.contacts = Contacts(Clock(SINCE.timestamp()))
        self.populated = True
        self.clock = Clock()
        self.readiness = Health(True)
        self.registry = CollectorRegistry()
        Counter("things", "Things", registry=self.registry).inc(3)
        self.api = Api(
            access=self.access,
            cache=self.cluster,
            sessions=self.sessions,
            contacts=self.contacts,
            types=TYPES,
            replica=self,
            registry=self.registry,
            version="1.2.3",
            stream_limits=msgspec.convert(stream_limits, StreamLimits),
        )
        self.recent = Recent(self.cluster, TYPES, clock=self.clock)
        self.logins, self.live = Logins(clock=self.clock), Live()
        self.logins.use_key(b"key of the cluster")
        visits = Visits(
            access=self.access,
            reviews=self.access,
            logins=self.logins,
            proxy=ProxyLogin(token_header),
            board=board_of(self.cluster, self.sessions, relays=self.relays, contacts=self.contacts),
            kinds=KINDS,
            replica=self,
        )
        self.console = Console(
            visits,
            live=self.live,
            callers_api=callers_api or NoChanges(),
            recent=self.recent,
            past=past,
            version="1.2.3",
        )
        self.server = RestServer(
            "127.0.0.1",
            0,
            routes=(*self.api.routes, *self.console.routes),
            metrics=RestMetrics(self.registry),
            limits=limits or RestLimits(),
        )
        self.client: ClientSession

    def is_populated(self) -> bool:
        return self.populated

    def health(self) -> Health:
        return self.readiness

    async def forget_callers(self) -> None:
        """As after the time for which answers of the Kubernetes API are remembered."""
        assert isinstance(self.access, KubernetesAccess)
        self.access._callers = Remembered(100, SYSTEM_CLOCK)
        self.access._rights = Remembered(100, SYSTEM_CLOCK)

    @property
    def url(self) -> str:
        return "http://{}:{}".format(*self.server.address)

    async def get(self, path: str, **headers: str) -> tuple[int, Any]:
        """Status and decoded JSON."""
        async with self.client.get(self.url + path, headers=headers) as response:
            return response.status, await response.json()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["RestSide"]:
        async with self.server, ClientSession() as self.client:
            yield self
