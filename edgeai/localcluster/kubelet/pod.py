"""Runs one pod on one node: its address, its volumes, its containers, its status, its end.

The pod writes a status only when the status differs from the status in the API. After a failed
write the pod tries again later, and the containers continue to run.
"""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from common.logs import get_logger
from common.tasks import TaskGroup
from edgeai.localcluster.controllers.events import EventRecorder
from edgeai.localcluster.kubelet.accounts import ApiAccess, has_account, with_token
from edgeai.localcluster.kubelet.container import (
    RETRY_MAX_S,
    Container,
    ContainerSettings,
    pause,
    retried,
)
from edgeai.localcluster.kubelet.expansion import Endpoint, ServiceHost
from edgeai.localcluster.kubelet.launch import (
    ContainerConfigError,
    Launch,
    PodView,
    launch,
    service_hosts,
)
from edgeai.localcluster.kubelet.logs import LogWriter, rotated
from edgeai.localcluster.kubelet.process import ContainerExecution, Reaper
from edgeai.localcluster.kubelet.status import (
    DEADLINE_MESSAGE,
    DEADLINE_REASON,
    ContainerRecord,
    pod_status,
    waiting,
)
from edgeai.localcluster.kubelet.volumes import MountError, PodDirectory, PodVolumes
from edgeai.localcluster.network.addresses import AddressesExhausted
from edgeai.localcluster.network.isolation import NO_ISOLATION, Isolation, NodeNetwork
from edgeai.localcluster.network.pod_addresses import PodAddresses
from edgeai.localcluster.network.service_proxy import host_of
from edgeai.localcluster.objects import errors
from edgeai.localcluster.objects.pods import is_ended
from edgeai.localcluster.objects.resources import PODS, SECRETS, SERVICES, Object, Resource
from edgeai.localcluster.objects.resources import key as key_of
from edgeai.localcluster.objects.store import Store
from edgeai.times import Clock, parse, rfc3339, utc_now

log = get_logger(__name__)

STATUS_RETRY_S = 2.0
_REFUSALS = (MountError, ContainerConfigError, OSError)  # of a volume that cannot be written now


class PodHost(msgspec.Struct, frozen=True, kw_only=True):
    """The parts and settings that all pods of a cluster share."""

    store: Store
    reaper: Reaper
    addresses: PodAddresses
    pods_directory: Path
    base_env: Mapping[str, str]
    settings: ContainerSettings = ContainerSettings()
    access: ApiAccess = ApiAccess()
    isolation: Isolation = NO_ISOLATION
    now: Clock = utc_now


class Pod:
    """Runs the containers of one pod and writes the pod's status. Raises: AddressesExhausted"""

    def __init__(self, pod: Object, host: PodHost, *, node_ip: str) -> None:
        self.host = host
        node = pod["spec"]["nodeName"]
        self._events = EventRecorder(host.store, component="kubelet", host=node, now=host.now)
        self._object = pod
        self.key = key_of(pod)
        self.where = "{name}_{namespace}({uid})".format(**pod["metadata"])  # for logs
        self._files = PodDirectory(host.pods_directory / pod["metadata"]["uid"])
        self._start = self._find_start()
        self.pod_ip = node_ip if pod["spec"].get("hostNetwork") else host.addresses.take(pod)
        self._host_ip = node_ip
        self._mounts: dict[str, dict[str, str]] = {}
        self._writers: dict[str, LogWriter] = {}
        self._halted = asyncio.Event()  # when set, no container may run any more
        self._ending = asyncio.Event()  # when set, the pod is being deleted
        self._is_status_frozen = False
        self._is_expired = False
        self._deadline_timer: asyncio.TimerHandle | None = None
        self._status_timer: asyncio.TimerHandle | None = None
        # A successful init container must not run again, so Always means OnFailure here.
        policy = str(pod["spec"].get("restartPolicy", "Always"))
        init_policy = "Never" if policy == "Never" else "OnFailure"
        self._inits = self._containers("initContainers", init_policy)
        self._mains = self._containers("containers", policy)

    @property
    def grace_s(self) -> float:
        return float(self._object["spec"].get("terminationGracePeriodSeconds") or 0)

    def writer(self, path: Path) -> LogWriter | None:
        """The writer of the log at `path`; None if the run began before the cluster's start."""
        return next((writer for writer in self._writers.values() if writer.path == path), None)

    async def execute(self, container: str, command: Sequence[str]) -> ContainerExecution | None:
        """Run a command in a container. Returns: None when the container does not run

        Raises: ContainerConfigError, ContainerStartError, OSError
        """
        for candidate in (*self._inits, *self._mains):
            if candidate.record.name == container:
                return await candidate.execute(command)
        return None

    def observe(self, pod: Object) -> None:
        """Take a newer version of the pod object: its deadline and its volumes may have changed."""
        self._object = pod
        self._set_deadline()
        self._refresh()

    def mounts(self, resource: Resource, name: str) -> bool:
        """Whether a volume of the pod has the content of this ConfigMap or Secret."""
        field, key = ("secret", "secretName") if resource is SECRETS else ("configMap", "name")
        for volume in self._object["spec"].get("volumes") or []:
            sources = (volume.get("projected") or {}).get("sources") or []
            references = [volume.get(field) or {}, *(source.get(field) or {} for source in sources)]
            if any(name in (one.get(key), one.get("name")) for one in references):
                return True
        return False

    def terminate(self, grace_s: float, *, keep: bool = False) -> None:
        """End the containers. Then `run` returns. A later call can only shorten the grace.

        Args:
            keep: do not change the status in the API, because the cluster stops and the pod stays
        """
        self._is_status_frozen = self._is_status_frozen or keep
        self._halt(grace_s)
        self._ending.set()

    async def run(self) -> None:
        """Run the pod until it is terminated. The containers of the pod may end earlier."""
        try:
            self._set_deadline()
            while not await self._have_containers_ended():
                await pause(self._halted, RETRY_MAX_S)
            self.publish()  # a deadline may have ended the pod before a container ran
            await self._ending.wait()
        finally:
            self._cancel_deadline()
            self._cancel_status_timer()

    def release(self) -> None:
        """Release the pod's address and remove its files. The pod's object still exists."""
        self.host.addresses.release(self._object["metadata"]["uid"])
        self._files.remove()

    # Running the containers

    async def _have_containers_ended(self) -> bool:
        """Run the containers until they end.

        Returns: False after an error of the kubelet itself; the caller must then try again
        """
        try:
            await self._run_containers()
        except Exception as error:  # an error in one pod must not end the others
            log.exception("pod failed", pod=self.where)
            self.warning("FailedKubelet", repr(error))
            return self._halted.is_set()
        return True

    def _set_deadline(self) -> None:
        """Set a timer for activeDeadlineSeconds of the pod.

        The deadline counts from the pod's startTime, which may be before the start of the cluster.
        """
        self._cancel_deadline()
        deadline_s = self._object["spec"].get("activeDeadlineSeconds")
        if deadline_s is None or self._halted.is_set():
            return
        left_s = deadline_s - (self.host.now() - self._start).total_seconds()
        if left_s <= 0:
            self._expire()
            return
        loop = asyncio.get_running_loop()
        self._deadline_timer = loop.call_later(left_s, self._expire)

    def _expire(self) -> None:
        """End the containers at the deadline. The pod stays in phase Failed, with its logs."""
        if is_ended(self._object):
            return
        self._is_expired = True
        self.normal(DEADLINE_REASON, DEADLINE_MESSAGE)
        self._halt(self.grace_s)

    def _halt(self, grace_s: float) -> None:
        self._cancel_deadline()
        for container in (*self._inits, *self._mains):
            container.terminate(grace_s)
        self._halted.set()

    async def _run_containers(self) -> None:
        first = self._inits or self._mains
        self._set_waiting(first, "ContainerCreating")
        self.publish()
        await self._mount(first)
        for container in self._inits:
            if self._halted.is_set() or await container.run() != 0:
                return
            self.publish()
        if self._inits:
            self._set_waiting(self._mains, "ContainerCreating")
        async with TaskGroup() as tasks:
            for container in self._mains:
                name = f"{container.record.name} of {self.where}"
                tasks.create_task(container.run(), name=name)

    def _set_waiting(self, containers: Sequence[Container], reason: str, message: str = "") -> None:
        """Set the waiting reason of the containers that have never run.

        `containers` get `reason`. All others wait for these, with the reason PodInitializing.
        """
        for container in (*self._inits, *self._mains):
            record = container.record
            if "waiting" in record.state and not record.last_state:
                is_next = container in containers
                record.state = waiting(reason, message) if is_next else waiting("PodInitializing")

    async def _mount(self, first: Sequence[Container]) -> None:
        """Mount the volumes. After a failure try again, until all volumes are mounted.

        Args:
            first: the containers that run first; their status shows a failure
        """

        def report(why: str) -> None:
            self.warning("FailedMount", why)
            # Kubernetes reports a failed mount by Events only. On a laptop the paths of a node are
            # often missing, so the status reports the failed mount, too.
            self._set_waiting(first, "CreateContainerConfigError", why)
            self.publish()

        mounts = await retried(lambda: self._volumes.mount(), _REFUSALS, report, self._halted)
        self._mounts = mounts or {}
        self._set_waiting(first, "ContainerCreating")

    @property
    def _volumes(self) -> PodVolumes:
        return PodVolumes(
            with_token(self._object) if self._has_account else self._object,
            self._files,
            self._look_up,
            pod_ip=self.pod_ip,
            host_ip=self._host_ip,
            token=self.host.access.token,
        )

    @property
    def _has_account(self) -> bool:
        return has_account(self._object, self._look_up)

    def _refresh(self) -> None:
        """Bring the volumes up to date. After a failure the containers keep the files they have."""
        if not self._mounts or self._halted.is_set():
            return
        try:
            self._volumes.refresh()
        except _REFUSALS as error:
            self.warning("FailedMount", str(error))

    # What the containers ask of their pod

    def normal(self, reason: str, message: str) -> None:
        self._events.normal(self._object, reason, message)

    def warning(self, reason: str, message: str) -> None:
        self._events.warning(self._object, reason, message)

    def _containers(self, field: str, policy: str) -> list[Container]:
        """Args: field: of the spec, initContainers or containers"""
        status = self._object.get("status") or {}
        entries = status.get(f"{field.removesuffix('s')}Statuses") or []
        former = {entry["name"]: entry for entry in entries}
        containers = []
        for spec in self._object["spec"].get(field) or []:
            record = ContainerRecord.restored(spec, former.get(spec["name"]))
            containers.append(Container(spec, record, self, policy))
        return containers

    def prepare(self, container: Object, command: Sequence[str] = ()) -> Launch:
        name = container["name"]
        root = self._files.root(name)
        view = PodView(
            pod=self._object,
            pod_ip=self.pod_ip,
            host_ip=self._host_ip,
            directory=self._files.path,
            root=root,
            mounts=self._mounts[name],
            services=self._services(),
            move_port=self._move_port,
            base_env={
                **self.host.base_env,
                **(self.host.access.env if self._has_account else {}),
                "TMPDIR": str(self._files.tmp),
            },
        )
        prepared = launch(container, view, self._look_up, command=command)
        if Path(prepared.cwd).is_relative_to(root):
            Path(prepared.cwd).mkdir(parents=True, exist_ok=True)
        enter = () if self._network is None else self._network.command
        return msgspec.structs.replace(prepared, enter=enter)

    @property
    def _network(self) -> NodeNetwork | None:
        """The network of the pod's node; None: that of this machine."""
        return self.host.isolation.networks.get(self._object["spec"]["nodeName"])

    def _services(self) -> list[ServiceHost]:
        hosts = service_hosts(self.host.store.list(SERVICES).items, self.host.addresses)
        if self._network is None:
            return hosts
        reaches = self.host.isolation.reaches_host
        return [service for service in hosts if reaches(host_of((service.namespace, service.name)))]

    def _move_port(self, endpoint: Endpoint) -> int:
        key = endpoint.host.namespace, endpoint.host.name
        try:
            return self.host.addresses.port(key, endpoint.port)
        except AddressesExhausted as error:
            raise ContainerConfigError(str(error)) from error

    def _look_up(self, resource: Resource, name: str) -> Object | None:
        return self.host.store.find(resource, self.key[0], name)

    def open_log(self, container: str, run: int) -> LogWriter:
        """Open the log of a run. Delete the logs of all earlier runs except the latest one."""
        path = log_path(self._files, container, run)
        old = log_path(self._files, container, run - 2)
        for file in (old, rotated(old)):
            file.unlink(missing_ok=True)
        writer = self._writers[container] = LogWriter(path)
        return writer

    # The status of the pod

    def _find_start(self) -> datetime:
        """When the pod started: the startTime in the API (whole seconds); for a new pod, now."""
        with contextlib.suppress(ValueError):
            return parse(str((self._object.get("status") or {}).get("startTime")))
        return self.host.now()

    def publish(self) -> None:
        """Write the pod's status if it differs from the status in the API."""
        if self._is_status_frozen:
            return
        facts = {
            "hostIP": self._host_ip,
            "podIP": self.pod_ip,
            "podIPs": [{"ip": self.pod_ip}],
            "startTime": rfc3339(self._start),
        }
        status = pod_status(
            self._object,
            facts,
            [container.record for container in self._inits],
            [container.record for container in self._mains],
            rfc3339(self.host.now()),
            is_expired=self._is_expired,
        )
        # Make a deep copy, because the records change later and `self._object` must not change.
        status = msgspec.json.decode(msgspec.json.encode(status))
        if status == self._object.get("status"):
            return
        names = {name: self._object["metadata"][name] for name in ("namespace", "name", "uid")}
        try:
            update = {"metadata": names, "status": status}
            self._object = self.host.store.update(PODS, update, subresource="status")
        except (errors.NotFound, errors.Conflict):
            return  # a client deleted the pod by force; the kubelet sees this, too
        except errors.APIError as error:
            log.warning("pod status not written", pod=self.where, error=error.message)
            self._cancel_status_timer()
            loop = asyncio.get_running_loop()
            self._status_timer = loop.call_later(STATUS_RETRY_S, self.publish)

    def _cancel_deadline(self) -> None:
        if self._deadline_timer:
            self._deadline_timer.cancel()

    def _cancel_status_timer(self) -> None:
        if self._status_timer:
            self._status_timer.cancel()


def log_path(directory: PodDirectory, container: str, run: int) -> Path:
    """The path of the log of one run. The first run of a container has number 0."""
    return directory.container(container) / "logs" / f"{run}.log"
