"""What writes to the API: on shares of their own, and plans only while this replica leads."""

from typing import NamedTuple

from common.clock import Clock
from edgeai.kube.client import KubeClient
from edgeai.kube.rate import Share
from globalmanager.cache.live import Live
from globalmanager.engine.apply import Applier
from globalmanager.engine.drift import Drift
from globalmanager.engine.events import Recorder
from globalmanager.engine.executions import Executions
from globalmanager.engine.metrics import EngineMetrics
from globalmanager.engine.observe import Observer
from globalmanager.engine.owners import Owners
from globalmanager.engine.pod_admission import PodAdmission
from globalmanager.engine.queue import WorkQueue
from globalmanager.engine.settings import EngineSettings
from globalmanager.engine.status import StatusWriter
from globalmanager.ha.fence import Fence


class Writers(NamedTuple):
    """The parts of the engine that write to the API."""

    recorder: Recorder
    """Records Events about job resources and nodes."""
    report_events: Recorder
    """Records Events about reports of edges, on any replica."""
    status_writer: StatusWriter
    """Writes .status by merge patch to exactly one uid. On any replica, it writes the reports of
    edges."""
    owners: Owners
    admission: PodAdmission
    applier: Applier
    executions: Executions


def build_writers(
    client: KubeClient,
    observer: Observer,
    queue: WorkQueue,
    settings: EngineSettings,
    fence: Fence,
    metrics: EngineMetrics,
    clock: Clock,
) -> Writers:
    caches = observer.jobs.caches
    plans = client.on_share(Share.PLANS).guarded(fence)
    recorder = Recorder(plans, metrics=metrics, clock=clock)
    reports = Recorder(client.on_share(Share.OTHER), metrics=metrics, clock=clock)
    status_writer = StatusWriter(client.on_share(Share.REPORTS), caches.written_to)
    owners = Owners(Live(plans, caches.all_of), clock)
    admission = PodAdmission(caches, settings.pod_security_default)
    applier = Applier(
        Live(plans, caches.written_to),
        owners,
        Drift(clock),
        # A plan's status write locks the job's status. If it waited behind all writes of plans, the
        # edges' reports about the job would wait, too. So it has a share of its own.
        status_writer.through(client.on_share(Share.STATUSES).guarded(fence)),
        recorder,
        kinds=caches.kinds,
        admission=admission,
        metrics=metrics.jobs,
    )
    commands = client.on_share(Share.OTHER).guarded(fence)
    executions = Executions(commands, caches=caches, queue=queue, metrics=metrics)
    return Writers(recorder, reports, status_writer, owners, admission, applier, executions)
