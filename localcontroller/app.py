"""Builds a LocalController from its settings, runs it, and stops its parts in order.

Only this module starts and joins the long-running asyncio tasks of the process.
"""

import asyncio
import contextlib
import signal
from collections.abc import Coroutine
from typing import Any, Final

from common.clock import LoopClock
from common.logs import get_logger
from common.settings import split_address
from common.tasks import TaskGroup, wait_at_most
from edgeai.backoff import Backoff
from edgeai.errors import SettingsError
from edgeai.ids import NodeName
from localcontroller.content import ContentStore
from localcontroller.hooks.addresses import parse_networks
from localcontroller.hooks.content_sources import ContentSources
from localcontroller.hooks.dataset import DatasetHook
from localcontroller.hooks.model import DISK_CALLS, ModelHook
from localcontroller.hooks.sources import DEFAULT_TIMEOUTS, SourceOptions, SourceThreads
from localcontroller.http_server import HttpServer
from localcontroller.ledger.ledger import Ledger
from localcontroller.ledger.tables import LedgerFull
from localcontroller.link.credentials import CredentialLost, Credentials
from localcontroller.link.endpoint import Addresses, Endpoint
from localcontroller.link.link import Link, default_delays
from localcontroller.link.relay_link import RelayLink
from localcontroller.metrics import Metrics
from localcontroller.rest import StatusApi
from localcontroller.settings import Settings
from localcontroller.traces import NO_TRACES, TaskSpans, TaskTraces
from localcontroller.workers.api import WorkerApi
from localcontroller.workers.heartbeats import Heartbeats, watch_heartbeats
from localcontroller.workers.models import ModelApi
from localcontroller.workers.proxy import MAX_STREAMS, Proxy

log = get_logger(__name__)

NO_SPACE_RETRY_S: Final = 5.0


class RestartNeeded(Exception):
    """A migration of the ledger loaded 10 MiB of libraries, which a new process does not need."""


async def run_until_signalled(settings: Settings) -> None:
    """Raises: SettingsError, StateError, CredentialLost, RestartNeeded"""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signal_ in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_, stop.set)
    await run(settings, stop, may_restart=True)


async def run(settings: Settings, stop: asyncio.Event, *, may_restart: bool = False) -> None:
    """Run the LocalController until `stop` is set.

    Args: may_restart: raise RestartNeeded after a migration, before any part runs
    Raises: SettingsError, StateError, CredentialLost, RestartNeeded
    """
    ledger = await _open_ledger(settings, stop)
    if ledger is None:
        return
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(ledger.close)
        if may_restart and ledger.file.was_updated:
            raise RestartNeeded
        try:
            await _run_with(ledger, settings, stop, stack)
        except BaseExceptionGroup as problems:
            failure = lost_credential(problems)
            if failure is None:
                raise
            raise failure from None  # what else failed while the parts stopped does not matter
    log.info("stopped")


def lost_credential(problems: BaseExceptionGroup) -> CredentialLost | None:
    """The CredentialLost among the problems, however deep; None when there is none."""
    problem: BaseException | None = problems.subgroup(CredentialLost)
    while isinstance(problem, BaseExceptionGroup):
        problem = problem.exceptions[0]
    return problem if isinstance(problem, CredentialLost) else None


async def _open_ledger(settings: Settings, stop: asyncio.Event) -> Ledger | None:
    """Open the ledger, and wait while the disk is full: a restart would find no more space.

    Returns: None if `stop` was set before there was space
    """
    while not stop.is_set():
        try:
            return await Ledger.open(
                settings.state_dir,
                max_bytes=settings.ledger_max_bytes,
                reserve_bytes=settings.ledger_reserve_bytes,
            )
        except LedgerFull as error:
            log.error(
                "cannot open the ledger, retrying", reason=str(error), retry_in_s=NO_SPACE_RETRY_S
            )
        await wait_at_most(NO_SPACE_RETRY_S, stop)
    return None


async def _run_with(
    ledger: Ledger, settings: Settings, stop: asyncio.Event, stack: contextlib.AsyncExitStack
) -> None:
    metrics = Metrics()
    traces = traces_of(settings)
    stack.push_async_callback(traces.close)
    ledger.on_commit, ledger.on_refusal = metrics.count_commit, metrics.count_refusal
    heartbeats = Heartbeats(silence_factor=settings.worker_silence_factor, clock=LoopClock())
    link, relay = _links(settings, ledger, metrics, traces)
    content = ContentStore(settings.state_dir / "content", max_bytes=settings.model_max_bytes)
    reads = SourceThreads(DISK_CALLS, DEFAULT_TIMEOUTS)
    proxy = Proxy(ledger, relay, metrics)
    worker_api = HttpServer(
        WorkerApi(ledger, heartbeats, metrics, models=ModelApi(content, reads)).handle,
        metrics,
        api="workers",
        divert=proxy.divert,
    )
    status_api = HttpServer(StatusApi(ledger, link, metrics).handle, metrics, api="status")
    address = await _serve(worker_api, settings.worker_address, "flag --worker-address", stack)
    proxy.listens(*address)
    await _serve(status_api, settings.status_address, "flag --status-address", stack)
    async with TaskGroup() as group:
        tasks = [
            group.create_task(link.run(), name="link"),
            group.create_task(relay.run(), name="relay"),
            group.create_task(watch_heartbeats(ledger, heartbeats), name="heartbeats"),
        ]
        options = _dataset_options(settings)
        datasets = DatasetHook(ledger, options)
        tasks.append(group.create_task(datasets.run(), name="datasets"))
        threads = SourceThreads(DISK_CALLS, DEFAULT_TIMEOUTS)
        sources = ContentSources(options, proxy, threads, DEFAULT_TIMEOUTS)
        rate = settings.model_bytes_per_s
        models = ModelHook(ledger, content, sources, threads, bytes_per_s=rate)
        tasks.append(group.create_task(models.run(), name="models"))
        if settings.pods_api:
            pods = _pod_watch(settings, ledger, heartbeats)
            tasks.append(group.create_task(pods, name="pods"))
        await stop.wait()
        for task in tasks:
            task.cancel()


def traces_of(settings: Settings) -> TaskTraces:
    """Raises: SettingsError"""
    if not settings.traces_endpoint:
        return NO_TRACES
    return TaskSpans(settings.traces_endpoint, settings.node_name)


def _links(
    settings: Settings, ledger: Ledger, metrics: Metrics, traces: TaskTraces
) -> tuple[Link, RelayLink]:
    endpoint = Endpoint(
        addresses=Addresses(settings.global_manager_urls),
        node=settings.node_name,
        credentials=Credentials(
            token_file=settings.token_file,
            ca_file=settings.ca_file,
            client_certificate=settings.client_certificate,
            client_key=settings.client_key,
        ),
    )
    delays = default_delays(min_s=settings.reconnect_min_s, max_s=settings.reconnect_max_s)
    relay = RelayLink(endpoint, timing=settings.timing, max_streams=MAX_STREAMS)
    link = Link(
        endpoint,
        ledger,
        metrics,
        timing=settings.timing,
        delays=delays,
        credential_check_s=settings.credential_check_s,
        credential_lost_s=settings.credential_lost_s,
        relay=relay,
        traces=traces,
    )
    return link, relay


def _pod_watch(
    settings: Settings, ledger: Ledger, heartbeats: Heartbeats
) -> Coroutine[Any, Any, None]:
    # Imported on first use: an HTTP client takes 7 MiB.
    from localcontroller.workers.pod_watch import PodsSource, PodWatch

    source = PodsSource(
        url=settings.pods_api,
        node=NodeName(settings.node_name),
        token_file=settings.pods_token_file,
        ca_file=settings.pods_ca_file,
    )
    backoff = Backoff(base_s=settings.reconnect_min_s, max_s=settings.reconnect_max_s)
    return PodWatch(source, ledger, heartbeats, backoff).run()


def _dataset_options(settings: Settings) -> SourceOptions:
    return SourceOptions(
        poll_s=settings.dataset_poll_s,
        data_root=settings.data_root,
        node_path_prefixes=settings.node_path_prefixes,
        networks=parse_networks(settings.dataset_networks),
        credentials_dir=settings.credentials_dir,
    )


async def _serve(
    server: HttpServer, address: str, source: str, stack: contextlib.AsyncExitStack
) -> tuple[str, int]:
    """Listen on `address` until the stack unwinds. Returns: the address

    Raises: SettingsError naming `source`
    """
    host, port = split_address(address, source)
    stack.push_async_callback(server.stop)
    try:
        bound_address = await server.start(host, port)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SettingsError(
            source, f"cannot listen on {address}: {reason}; choose another or free it"
        ) from error
    log.info("listening", setting=source, address=bound_address)
    return bound_address
