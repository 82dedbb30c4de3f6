"""Builds the engine from its parts. Each part gets only parts that exist already."""

from collections.abc import Mapping, Sequence
from typing import Final

from prometheus_client import CollectorRegistry

from common.clock import SYSTEM_CLOCK, Clock
from edgeai.api.resources import POD_CONTROLLERS, ResourceType
from edgeai.kube.client import KubeClient
from globalmanager.cache.informers import Informers
from globalmanager.cache.pods import FORMS
from globalmanager.cache.specs import LargeSpecs
from globalmanager.contract import Kind, WorkerSettings
from globalmanager.engine.assign import Assigner, AssignmentSink
from globalmanager.engine.caches import Caches
from globalmanager.engine.changes import ChangeHandler
from globalmanager.engine.fan_out import FanOut
from globalmanager.engine.jobs import Jobs
from globalmanager.engine.loop import Engine
from globalmanager.engine.metrics import EngineMetrics
from globalmanager.engine.observe import Observer
from globalmanager.engine.queue import WorkQueue
from globalmanager.engine.reconcile import JobReconciler
from globalmanager.engine.settings import EngineSettings
from globalmanager.engine.writers import build_writers
from globalmanager.ha.contacts import Contacts
from globalmanager.ha.fence import Fence
from globalmanager.traces import NO_TRACES, TaskTraces

_JOBS_PER_SLICE: Final = 1  # of a fan-out; a plan takes 1 to 2 ms


def build_engine(
    client: KubeClient,
    kinds: Sequence[Kind],
    *,
    sink: AssignmentSink,
    contacts: Contacts,
    worker_settings: WorkerSettings,
    fence: Fence,
    settings: EngineSettings = EngineSettings(),  # noqa: B008 - immutable
    metrics: EngineMetrics | None = None,
    clock: Clock = SYSTEM_CLOCK,
    traces: TaskTraces = NO_TRACES,
) -> Engine:
    """An engine that serves `kinds`. `Engine.run` adds the root key to `worker_settings`."""
    metrics = metrics or EngineMetrics(CollectorRegistry())
    types = served_types([kind.under(worker_settings) for kind in kinds], settings.groups)
    client, informers, caches = _reading(client, types, settings, clock)
    queue = WorkQueue(rest_s=settings.rest_s)
    fan_out = FanOut(queue, jobs_per_slice=_JOBS_PER_SLICE, clock=clock)
    observer = Observer(Jobs(caches), contacts, worker_settings)
    assigner = Assigner(observer, sink, plans=fan_out, metrics=metrics, traces=traces, clock=clock)
    writers = build_writers(client, observer, queue, settings, fence, metrics, clock)
    reconciler = JobReconciler(observer, writers, fence=fence, clock=clock, traces=traces)
    changes = ChangeHandler(
        observer,
        queue=queue,
        fan_out=fan_out,
        assigner=assigner,
        owners=writers.owners,
        reconciler=reconciler,
        fence=fence,
        metrics=metrics.jobs,
        counts_s=settings.counts_s,
    )
    engine = Engine(
        settings,
        informers,
        observer,
        writers,
        fence=fence,
        queue=queue,
        fan_out=fan_out,
        assigner=assigner,
        reconciler=reconciler,
        changes=changes,
        metrics=metrics,
    )
    informers.subscribe(engine)
    contacts.subscribe(engine)
    caches.open()
    return engine


def _reading(
    client: KubeClient, types: Mapping[ResourceType, Kind], settings: EngineSettings, clock: Clock
) -> tuple[KubeClient, Informers, Caches]:
    """The client that keeps of each object what is read of it, and what it fills."""
    client = client.reading({**FORMS, **dict.fromkeys(types, LargeSpecs())})
    informers = Informers(
        client,
        namespace=settings.namespace,
        owners=(*types, *POD_CONTROLLERS, *POD_CONTROLLERS.values()),
        settings=settings.informer,
        clock=clock,
    )
    return client, informers, Caches(informers, types)


def served_types(kinds: Sequence[Kind], groups: Sequence[str] | None) -> dict[ResourceType, Kind]:
    return {
        type_: kind
        for kind in kinds
        for type_ in kind.definition.resources
        if groups is None or type_.group in groups
    }
