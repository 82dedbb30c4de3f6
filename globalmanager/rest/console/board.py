"""What the pages show, read from the caches: jobs and nodes as rows.

A row of a job is computed once for each version of the job. This module reads only what a Sight
allows, so that no page can show more.
"""

import asyncio
import time
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from operator import attrgetter
from typing import Any, Final, NamedTuple, Protocol

from common.clock import SYSTEM_CLOCK, Clock
from edgeai.api.resources import AUTOSCALERS, DEPLOYMENTS, Object, ObjectRef, ResourceType
from edgeai.api.status import mapping
from edgeai.faults.summary import faults_of, in_one_line, normal_waits, phase_of, progress_of
from edgeai.faults.tones import Tone, contact_of, tone_of
from edgeai.ids import NodeName
from edgeai.text import shortened
from globalmanager.cache.store import controller_of
from globalmanager.contract import Contact
from globalmanager.edge.sessions.registry import SessionInfo
from globalmanager.edge.sessions.relay import RelayInfo
from globalmanager.engine.jobs import Owned
from globalmanager.ha.contacts import Contacts
from globalmanager.kinds.training.edge_placement import is_edge
from globalmanager.rest.api import ObjectCache, SessionRegistry
from globalmanager.rest.certificates import NODE_REMEDY, end_in_words, ends_soon
from globalmanager.rest.console.rollouts import FleetRollout, RolloutNode

ZONE_LABEL: Final = "topology.kubernetes.io/zone"
REGION_LABEL: Final = "topology.kubernetes.io/region"
NO_SITE: Final = "no site"
MAX_MESSAGE_CHARS: Final = 300
MAX_PHASE_CHARS: Final = 64
MAX_SITE_CHARS: Final = 64
MAX_COMPUTED: Final = 2000  # rows between two looks for jobs that are gone
SLICE_S: Final = 0.005
APART: Final = {
    "models": ("Model",),
    "datasets": ("Dataset",),
    "scalers": ("ScaleIn", "ScaleOut"),
}
"""Section -> kinds that stand in it, apart from the jobs."""
MAX_NAMESPACES: Final = 500  # of the list to choose from
MAX_LINKS: Final = 50  # objects that one page names
_NAMED: Final = {"model": "Model", "dataset": "Dataset", "selector": "TrainingJob"}
"""Field of a spec -> kind of the object that it names."""
_NAMED_DEPTH: Final = 2  # spec.trainingWorkers[].dataset
_SCALED_TYPES: Final = (AUTOSCALERS, DEPLOYMENTS)


class JobCache(ObjectCache, Protocol):
    def owned(self, ref: ObjectRef) -> Owned | None: ...

    def scalers(self, ref: ObjectRef) -> Mapping[ObjectRef, Object]: ...

    def pods_on(self, node: NodeName, namespace: str) -> tuple[Object, ...]: ...


class Relays(Protocol):
    def info(self, node: NodeName) -> RelayInfo | None: ...


class Sight(NamedTuple):
    """What a caller may see. Two callers with the same Sight get the same pages."""

    namespace: str
    """"" means all namespaces."""
    types: frozenset[ResourceType]
    nodes: bool
    is_whole: bool = False
    """All types in all namespaces: numbers of tasks tell the caller nothing new."""
    pods: bool = False
    """All pods of the job, or of the node, that the page is about."""


class JobRow(NamedTuple):
    type: ResourceType
    namespace: str
    name: str
    uid: str
    created: str
    phase: str
    tone: Tone
    progress: str
    trouble: str
    remedy: str
    section: str
    """The list in which it stands."""
    uses: frozenset[tuple[str, str]]
    """(kind, name) of the objects beside it that its spec names."""

    @property
    def ref(self) -> ObjectRef:
        return ObjectRef(self.type, self.namespace, self.name)

    @property
    def path(self) -> str:
        return path_of(self.ref)


class NodeRow(NamedTuple):
    name: str
    site: str
    is_edge: bool
    in_cluster: bool
    connected: bool
    since: datetime | None
    problem: str
    certificate_end: str
    """In words; "" where the node has shown no certificate."""
    certificate_remedy: str
    """"" while it does not end soon."""
    tasks_desired: int | None
    """None: the caller may not know."""
    tasks_held: int | None
    last_report_at: datetime | None
    """As the numbers of tasks: it tells when somebody's worker has reported."""
    relay: RelayInfo | None
    """As the numbers of tasks."""
    session: SessionInfo | None
    object: Object
    """The Node; empty where the cluster has none."""

    @property
    def contact(self) -> tuple[str, Tone]:
        is_expected = self.since is not None or self.is_edge
        return contact_of(is_connected=self.connected, is_expected=is_expected)

    @property
    def text(self) -> str:
        return self.contact[0]

    @property
    def tone(self) -> Tone:
        return self.contact[1]


class Board:
    """The rows of all pages. Args: types: the types of job resources that are served"""

    def __init__(
        self,
        *,
        cache: JobCache,
        sessions: SessionRegistry,
        relays: Relays,
        contacts: Contacts,
        types: Collection[ResourceType],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._cache = cache
        self._sessions = sessions
        self._relays = relays
        self._contacts = contacts
        self._types = types
        self._clock = clock
        self._rows: dict[ObjectRef, tuple[Any, JobRow]] = {}  # job -> its version, its row
        self._computed = 0  # rows since those of jobs that are gone were forgotten

    @property
    def types(self) -> tuple[ResourceType, ...]:
        return tuple(sorted(self._types, key=attrgetter("kind", "group")))

    def type_of(self, name: str) -> ResourceType | None:
        """Args: name: "<plural>.<group>" """
        return next((type_ for type_ in self._types if str(type_) == name), None)

    # ---- jobs ----

    def jobs(self, sight: Sight) -> list[JobRow]:
        """By namespace and name."""
        rows = [row for type_ in sight.types for row in self._rows_of(type_, sight.namespace)]
        return sorted(rows, key=attrgetter("namespace", "name", "type.kind"))

    def namespaces(self, types: Collection[ResourceType]) -> tuple[str, ...]:
        """Those with objects of the types."""
        objects = (object_ for type_ in types for object_ in self._cache.list(str(type_)))
        names = {str(object_["metadata"].get("namespace", "")) for object_ in objects}
        return tuple(sorted(names)[:MAX_NAMESPACES])

    def job(self, sight: Sight, ref: ObjectRef) -> Object | None:
        is_seen = ref.type in sight.types and sight.namespace in ("", ref.namespace)
        return self._cache.get(ref) if is_seen else None

    def now(self) -> datetime:
        return self._clock.utcnow()

    def pods(self, sight: Sight, ref: ObjectRef) -> tuple[Object, ...]:
        """The pods of a job, by name."""
        children = self._cache.owned(ref) if sight.pods and self.job(sight, ref) else None
        return () if children is None else children.pods

    def scaled_children(self, sight: Sight, ref: ObjectRef) -> tuple[Object, ...]:
        """The children of a job that Kubernetes scales, or that scale them."""
        owned = self._cache.owned(ref) if self.job(sight, ref) else None
        children = () if owned is None else owned.children.items()
        return tuple(object_ for child, object_ in children if child.type in _SCALED_TYPES)

    def scalers(self, sight: Sight, ref: ObjectRef) -> dict[ObjectRef, Object]:
        """The scalers that name a job, the oldest first."""
        scalers = self._cache.scalers(ref) if self.job(sight, ref) else {}
        return {ref: scaler for ref, scaler in scalers.items() if ref.type in sight.types}

    def links(self, sight: Sight, ref: ObjectRef) -> list[JobRow]:
        """What a job names, else what names the Model or Dataset, as far as the caller sees it."""
        object_ = self.job(sight, ref)
        if object_ is None:
            return []
        types = [type_ for type_ in sight.types if type_.group == ref.type.group]
        uses = self._row(ref.type, object_).uses
        if uses:
            refs = [
                ObjectRef(type_, ref.namespace, name)
                for type_ in types
                for kind, name in sorted(uses)
                if type_.kind == kind
            ]
            return [self._row(use.type, used) for use in refs if (used := self._cache.get(use))]
        own = (ref.type.kind, ref.name)
        rows = (row for type_ in types for row in self._rows_of(type_, ref.namespace))
        return [row for row in rows if own in row.uses][:MAX_LINKS]

    def rollout(
        self, sight: Sight, ref: ObjectRef
    ) -> tuple[FleetRollout, list[RolloutNode]] | None:
        """With its nodes: reports and status of the job name them, too."""
        object_ = self.job(sight, ref)
        rollout = FleetRollout.of(self._cache, ref.type, object_) if object_ else None
        if rollout is None:
            return None
        owned = self._cache.owned(ref)
        children = owned.children if owned else {}
        return rollout, rollout.nodes(self._cache.nodes(), self._contacts, children)

    async def prepare(self, sight: Sight) -> None:
        """Compute the rows that `jobs` needs, and let other tasks run meanwhile. The rows of 5,000
        jobs that nobody has looked at take a sixth of a second.
        """
        began_s = time.perf_counter()
        for type_ in sight.types:
            for object_ in self._cache.list(str(type_), sight.namespace):
                self._row(type_, object_)
                if time.perf_counter() - began_s > SLICE_S:
                    await asyncio.sleep(0)
                    began_s = time.perf_counter()

    def _rows_of(self, type_: ResourceType, namespace: str) -> list[JobRow]:
        rows = [self._row(type_, object_) for object_ in self._cache.list(str(type_), namespace)]
        if self._computed > MAX_COMPUTED:  # forget the rows of jobs that are gone
            self._rows = {ref: row for ref, row in self._rows.items() if self._cache.get(ref)}
            self._computed = 0
        return rows

    def _row(self, type_: ResourceType, object_: Object) -> JobRow:
        """The row of an unchanged job is the one of the last call."""
        metadata = object_["metadata"]
        ref = ObjectRef(type_, metadata.get("namespace", ""), metadata["name"])
        version = (metadata.get("uid"), metadata.get("resourceVersion"))
        entry = self._rows.get(ref)
        if entry is None or entry[0] != version:
            entry = self._rows[ref] = (version, job_row(type_, object_))
            self._computed += 1
        return entry[1]

    # ---- nodes ----

    def nodes(self, sight: Sight, name: NodeName | None = None) -> list[NodeRow]:
        """By site and name; empty without the right. Args: name: only the row of this node"""
        if not sight.nodes:
            return []
        live = {info.node: info for info in self._sessions.snapshot()}
        nodes_by_name = {NodeName(node["metadata"]["name"]): node for node in self._cache.nodes()}
        contacts = self._contacts.by_node()
        names = nodes_by_name.keys() | contacts.keys()
        rows = [
            self._node_row(one, nodes_by_name.get(one), contacts.get(one), live.get(one), sight)
            for one in (names if name is None else names & {name})
        ]
        rows.sort(key=attrgetter("site", "name"))
        return rows

    def node(self, sight: Sight, name: NodeName) -> NodeRow | None:
        return next(iter(self.nodes(sight, name)), None)

    def pods_on(self, sight: Sight, name: NodeName) -> list[tuple[Object, JobRow | None]]:
        """The pods on a node with their jobs, where a job itself is their controller."""
        pods = self._cache.pods_on(name, sight.namespace) if sight.pods else ()
        return [(pod, self._owner(sight, pod)) for pod in pods]

    def _owner(self, sight: Sight, pod: Object) -> JobRow | None:
        owner = controller_of(pod) or {}
        for type_ in sight.types:
            if (type_.api_version, type_.kind) == (owner.get("apiVersion"), owner.get("kind")):
                ref = ObjectRef(type_, pod["metadata"]["namespace"], owner["name"])
                object_ = self._cache.get(ref)
                return None if object_ is None else self._row(type_, object_)
        return None

    def _node_row(
        self,
        name: NodeName,
        node: Object | None,
        contact: Contact | None,
        info: SessionInfo | None,
        sight: Sight,
    ) -> NodeRow:
        is_connected = info is not None or (contact is not None and contact.connected)
        session = info if sight.is_whole else None
        labels = {} if node is None else mapping(node["metadata"].get("labels"))
        ends_on, today = self._contacts.certificate_ends_on(name), self._clock.utcnow().date()
        is_ending = ends_on is not None and ends_soon(ends_on, today)
        return NodeRow(
            name=name,
            site=site_of(labels),
            is_edge=is_edge(node),
            in_cluster=node is not None,
            connected=is_connected,
            since=None if contact is None else contact.since,
            problem="" if is_connected else self._sessions.problem(name),
            certificate_end="" if ends_on is None else end_in_words(ends_on, today),
            certificate_remedy=NODE_REMEDY if is_ending else "",
            tasks_desired=self._sessions.desired_count(name) if sight.is_whole else None,
            tasks_held=None if session is None else session.held,
            last_report_at=None if session is None else session.last_report_at,
            relay=self._relays.info(name) if sight.is_whole else None,
            session=info,
            object=node or {},
        )


def site_of(labels: Mapping[str, Any]) -> str:
    site = labels.get(ZONE_LABEL) or labels.get(REGION_LABEL) or NO_SITE
    return str(site)[:MAX_SITE_CHARS]


def path_of(ref: ObjectRef) -> str:
    """The address of a job's page."""
    return f"/jobs/{ref.type}/{ref.namespace}/{ref.name}"


def section_of(kind: str) -> str:
    """The list in which objects of this kind stand."""
    return next((name for name, kinds in APART.items() if kind in kinds), "jobs")


def job_row(type_: ResourceType, object_: Object) -> JobRow:
    metadata, status = object_["metadata"], object_.get("status")
    phase = phase_of(status)
    faults = faults_of(object_)
    waits = faults or tuple(normal_waits(object_))
    return JobRow(
        type=type_,
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        created=str(metadata.get("creationTimestamp", "")),
        phase=phase[:MAX_PHASE_CHARS],
        tone=tone_of(phase, faults),
        progress=progress_of(status)[:MAX_MESSAGE_CHARS],
        trouble=shortened(in_one_line(waits), MAX_MESSAGE_CHARS),
        remedy=waits[0].remedy if waits else "",
        section=section_of(type_.kind),
        uses=frozenset(_names_in(object_.get("spec"))),
    )


def _names_in(value: Any, depth: int = 0) -> Iterator[tuple[str, str]]:
    """The objects that a spec names: {"model": {"name": ...}}, {"selector": {"name": ...}}."""
    items = value if isinstance(value, list) else list(mapping(value).values())
    for key, kind in _NAMED.items():
        name = mapping(mapping(value).get(key)).get("name")
        if isinstance(name, str):
            yield kind, name
    if depth < _NAMED_DEPTH:
        for item in items[:MAX_LINKS]:
            yield from _names_in(item, depth + 1)
