"""Runs the pods that are bound to the nodes of the cluster, as processes of this machine.

The kubelet follows the store and runs one `Pod` for each pod of its nodes. When a pod is being
deleted and its processes have ended, the kubelet deletes the pod from the API. The kubelet keeps
all its state in the store. So after a restart of the cluster every pod runs again, as its restart
policy says. The kubelet never binds a pod to a node.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping

from common.logs import get_logger
from common.tasks import TaskGroup
from edgeai.localcluster.controllers.controller import Controller
from edgeai.localcluster.kubelet.container import pause
from edgeai.localcluster.kubelet.launch import ContainerConfigError, ContainerStartError
from edgeai.localcluster.kubelet.logs import read_log
from edgeai.localcluster.kubelet.pod import Pod, PodHost, log_path
from edgeai.localcluster.kubelet.process import DRAIN_S, ContainerExecution
from edgeai.localcluster.kubelet.volumes import PodDirectory
from edgeai.localcluster.objects import errors
from edgeai.localcluster.objects.containers import CannotExecute, ContainerQuery, LogQuery
from edgeai.localcluster.objects.pods import is_ended
from edgeai.localcluster.objects.resources import CONFIGMAPS, PODS, SECRETS, Key, Object
from edgeai.localcluster.objects.resources import key as key_of
from edgeai.localcluster.objects.store import Change

log = get_logger(__name__)


class Kubelet(Controller[Key]):
    """Runs the pods of all nodes. Args: nodes: name of a node -> InternalIP"""

    def __init__(self, nodes: Mapping[str, str], host: PodHost) -> None:
        super().__init__(host.store, "kubelet")
        self._nodes = nodes
        self._host = host
        self._pods: dict[str, Pod] = {}  # uid -> pod
        self._stopping = False
        self._idle = asyncio.Event()  # set while no pod runs
        self._idle.set()

    async def run(self) -> None:
        """Run the pods until cancelled. Then kill the processes that still run."""
        async with TaskGroup() as self._tasks:
            await super().run()

    def _add_all(self) -> None:
        pods = {pod["metadata"]["uid"]: pod for pod in self._store.list(PODS).items}
        for pod in pods.values():
            self._add(key_of(pod))
        for path in self._host.pods_directory.iterdir():
            if path.name not in pods:  # the pod was deleted while no kubelet ran
                PodDirectory(path).remove()

    async def stop(self, limit_s: float) -> None:
        """End all containers. Each pod gets its grace, at most `limit_s` seconds.

        The status of the pods stays in the API, so the next cluster runs the pods again.
        """
        self._stopping = True
        for pod in self._pods.values():
            pod.terminate(min(pod.grace_s, limit_s), keep=True)
        await pause(self._idle, limit_s + DRAIN_S)

    def _changed(self, change: Change) -> None:
        if change.resource in (CONFIGMAPS, SECRETS):
            namespace, name = key_of(change.object)
            for pod in self._pods.values():
                if pod.key[0] == namespace and pod.mounts(change.resource, name):
                    self._add(pod.key)
        elif change.resource is PODS:
            self._add(key_of(change.object))

    async def _reconcile(self, key: Key) -> None:
        if self._stopping:
            return
        pod = self._store.find(PODS, *key)
        uid = pod["metadata"]["uid"] if pod else ""
        for other_uid, other in self._pods.items():
            if other.key == key and other_uid != uid:
                other.terminate(0)  # a client deleted this pod by force
        if pod is None or pod["spec"].get("nodeName") not in self._nodes:
            return
        if uid in self._pods:
            self._observe(pod)
        elif "deletionTimestamp" in pod["metadata"]:
            # No process of the pod is left.
            self._store.delete(PODS, *key, uid=uid, grace_period_s=0)
            log.info("pod deleted", pod="/".join(key))
        elif not is_ended(pod):
            self._admit(pod)

    def _observe(self, pod: Object) -> None:
        metadata = pod["metadata"]
        running = self._pods[metadata["uid"]]
        running.observe(pod)
        if "deletionTimestamp" in metadata:
            running.terminate(float(metadata.get("deletionGracePeriodSeconds") or 0))

    def _admit(self, pod: Object) -> None:
        admitted = Pod(pod, self._host, node_ip=self._nodes[pod["spec"]["nodeName"]])
        uid = pod["metadata"]["uid"]
        self._pods[uid] = admitted
        self._idle.clear()
        name = "pod {namespace}/{name}".format(**pod["metadata"])
        self._tasks.create_task(self._run_pod(uid, admitted), name=name)

    async def _run_pod(self, uid: str, pod: Pod) -> None:
        try:
            await pod.run()
        finally:
            del self._pods[uid]
            if not self._pods:
                self._idle.set()
        if not self._stopping:
            pod.release()
            self._add(pod.key)  # _reconcile deletes the pod from the API

    # What clients ask for

    async def logs(self, query: LogQuery) -> AsyncIterator[bytes]:
        """The pieces of the log that the query asks for.

        Raises: errors.BadRequest when the container has no such run; errors.NotFound
        """
        run = self._run(query)
        directory = PodDirectory(self._host.pods_directory / query.uid)
        path = log_path(directory, query.container, run)
        pod = self._pods.get(query.uid)
        try:
            async for piece in read_log(path, query, pod.writer(path) if pod else None):
                yield piece
        except FileNotFoundError as error:
            raise errors.BadRequest(
                f'container "{query.container}" in pod "{query.pod}" has not started yet'
            ) from error

    async def execute(self, query: ContainerQuery, command: tuple[str, ...]) -> ContainerExecution:
        """Raises: errors.NotFound when the container does not run; CannotExecute"""
        try:
            pod = self._pods.get(query.uid)
            execution = await pod.execute(query.container, command) if pod else None
        except (ContainerConfigError, ContainerStartError, OSError) as error:
            raise CannotExecute(str(error)) from error
        if execution is None:
            raise errors.NotFound(
                f'unable to upgrade connection: container not found ("{query.container}")'
            )
        return execution

    def _run(self, query: LogQuery) -> int:
        """The number of the run that the query asks for. A container's first run has number 0.

        Raises: errors.BadRequest when the query asks for a previous run that does not exist
        """
        status = self._store.get(PODS, query.namespace, query.pod).get("status") or {}
        records = (status.get("initContainerStatuses") or []) + (
            status.get("containerStatuses") or []
        )
        record: Object = next((entry for entry in records if entry["name"] == query.container), {})
        run = int(record.get("restartCount", 0))
        if not query.previous:
            return run
        if not record.get("lastState"):
            raise errors.BadRequest(
                f'previous terminated container "{query.container}" in pod "{query.pod}" not found'
            )
        # restartCount counts a run that runs or has ended, but not a run that still waits.
        return run if "waiting" in record["state"] else run - 1
