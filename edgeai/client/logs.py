"""The log of a job: the lines of all its pods, in one stream.

Without `follow`, the lines are in the order of their times. With `follow`, they come as they come,
also those of pods that start later. A pod whose log cannot be read says so in a notice, and the
others go on: an edge node need not have log streams.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import Final

import msgspec

from edgeai.api.objects import LABEL_ROLE, controllers, label_of
from edgeai.api.pod_state import node_of, phase_of
from edgeai.api.resources import POD_CONTROLLERS, PODS, Object, ObjectRef, ref_of
from edgeai.api.status import mapping, mappings
from edgeai.client.changes import Change, follow
from edgeai.client.objects import AnyResource
from edgeai.client.pods import owners_of, pods_of
from edgeai.client.state import conditions_of
from edgeai.errors import EdgeAIError
from edgeai.faults.pod_faults import first_fault
from edgeai.kube import errors
from edgeai.kube.client import KubeClient
from edgeai.labels import LABEL_WORKER
from edgeai.text import printable

MAX_STREAMS: Final = 100  # pods whose logs are read at the same time
_WAITING_LINES: Final = 1000


class LogLine(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One line of a worker's log, or a notice about the log of a pod."""

    worker: str
    """The pod; and its container, where the pod has several."""
    node: str
    time: str
    """RFC 3339; "" of a notice."""
    text: str
    """Without control characters, which could change what a terminal shows."""
    is_notice: bool = False


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """The part of each container's log that is wanted: as KubeClient.log_lines."""

    tail: int | None = None
    since_s: int | None = None
    is_previous: bool = False


class _Source(msgspec.Struct, frozen=True):
    pod: Object
    container: str

    @property
    def worker(self) -> str:
        name = str(self.pod["metadata"]["name"])
        is_alone = len(self.pod["spec"].get("containers") or ()) == 1
        return printable(name if is_alone else f"{name}/{self.container}")

    def line(self, raw: bytes) -> LogLine:
        time, _, text = raw.decode(errors="replace").partition(" ")
        node = printable(node_of(self.pod))
        return LogLine(worker=self.worker, node=node, time=printable(time), text=printable(text))

    def notice(self, text: str) -> LogLine:
        node = printable(node_of(self.pod))
        text = printable(text)
        return LogLine(worker=self.worker, node=node, time="", text=text, is_notice=True)


def worker_words(pod: Object) -> set[str]:
    """The words that mean this pod: its name, its role, the name by which its worker reports."""
    labels = (label_of(pod, LABEL_ROLE), label_of(pod, LABEL_WORKER))
    return {word for word in (str(pod["metadata"]["name"]), *labels) if word}


def has_worker(pod: Object, worker: str) -> bool:
    """Whether a user means this pod, also by the end of its name. "" means every pod."""
    is_end = str(pod["metadata"]["name"]).endswith(f"-{worker}")
    return not worker or is_end or worker in worker_words(pod)


async def read_logs(
    kube: KubeClient, job: AnyResource, worker: str, part: Part
) -> AsyncGenerator[LogLine, None]:
    """What the logs of the job's pods have now. Raises: ApiError when no pods can be listed"""
    pods = [pod for pod in await pods_of(kube, job) if has_worker(pod, worker)]
    sources = [source for pod in pods for source in _sources(pod)]
    for first in range(0, len(sources), MAX_STREAMS):
        streams = [_lines(kube, source, part) for source in sources[first : first + MAX_STREAMS]]
        async with aclosing(_by_time(streams)) as lines:
            async for line in lines:
                yield line


async def _by_time(
    streams: Iterable[AsyncGenerator[LogLine, None]],
) -> AsyncGenerator[LogLine, None]:
    """Merge streams each of which is in order. It holds one line of each."""
    queue = list(streams)
    heads: dict[int, LogLine] = {}
    try:
        firsts = await asyncio.gather(*(anext(stream, None) for stream in queue))
        heads = {number: line for number, line in enumerate(firsts) if line is not None}
        while heads:
            number = min(heads, key=lambda one: heads[one].time)
            yield heads.pop(number)
            following = await anext(queue[number], None)
            if following is not None:
                heads[number] = following
    finally:
        for stream in queue:
            await stream.aclose()


async def _lines(
    kube: KubeClient, source: _Source, part: Part, *, is_followed: bool = False
) -> AsyncGenerator[LogLine, None]:
    """The lines of one container, and a notice when they cannot be read."""
    ref = ref_of(PODS, source.pod)
    wanted = msgspec.structs.asdict(part)
    stream = kube.log_lines(ref, container=source.container, follow=is_followed, **wanted)
    try:
        async with aclosing(stream) as lines:
            async for raw in lines:
                yield source.line(raw)
    except EdgeAIError as error:
        yield source.notice(_explained(source, error))


def _explained(source: _Source, error: EdgeAIError) -> str:
    node = node_of(source.pod)
    if isinstance(error, errors.Forbidden | errors.Unauthorized):
        return str(error)
    if isinstance(error, errors.NotFound):
        return "the pod is gone, and its log with it"
    fault = first_fault([source.pod])
    if not node or phase_of(source.pod) == "Pending":
        return f"has not started yet: {fault.message if fault else 'no container runs'}"
    text = getattr(error, "message", "") or str(error)
    return (
        f"node {node} does not stream logs ({text}); on KubeEdge enable cloudStream and "
        "edgeStream (docs/kubeedge.md), or read the log on the node: crictl logs"
    )


def _sources(pod: Object) -> list[_Source]:
    return [
        _Source(pod, str(container["name"])) for container in pod["spec"].get("containers") or ()
    ]


# ---- follow -------------------------------------------------------------------------------------


def follow_logs(
    kube: KubeClient, job: AnyResource, worker: str, part: Part
) -> AsyncGenerator[LogLine, None]:
    """The lines of all pods of the job as they come, until the job is gone.

    Raises: ApiError when no pods can be listed
    """
    return _Followed(kube, job, worker, part).run()


class _Followed:
    def __init__(self, kube: KubeClient, job: AnyResource, worker: str, part: Part) -> None:
        self._kube, self._job = kube, job
        self._worker, self._part = worker, part
        self._lines: asyncio.Queue[LogLine | EdgeAIError | None] = asyncio.Queue(_WAITING_LINES)
        self._runs: set[tuple[str, str, int]] = set()  # uid of the pod, container, run
        self._streams: set[asyncio.Task[None]] = set()
        self._owners: set[str] = set()  # uids of the objects whose pods are the job's
        self._judged: set[str] = set()  # uids of the controllers that are known to be or not

    async def run(self) -> AsyncGenerator[LogLine, None]:
        tasks = [
            asyncio.create_task(coroutine)
            for coroutine in (self._follow_pods(), self._until_over())
        ]
        try:
            while (line := await self._lines.get()) is not None:
                if isinstance(line, EdgeAIError):
                    raise line
                yield line
        finally:
            tasks += self._streams
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow_pods(self) -> None:
        """Open a stream for each run of each container. The pods tell when a container starts."""
        namespace = self._job.namespace
        try:
            pods = (await self._kube.list(PODS, namespace=namespace)).items
            await self._judge({uid for pod in pods for uid in _controllers(pod)})
            async with aclosing(follow(self._kube, ObjectRef(PODS, namespace, ""))) as changes:
                async for change in changes:
                    unknown = _controllers(change.object, of_kubernetes=True) - self._judged
                    if unknown and self._job.DEFINITION.pod_owners:
                        await self._judge(unknown)
                    if _controllers(change.object) & self._owners:
                        self._begin(change.object)
        except EdgeAIError as error:
            await self._lines.put(error)

    async def _judge(self, controllers: set[str]) -> None:
        """Learn which of these controllers are of the job, so that other pods cost no requests."""
        self._owners = await owners_of(self._kube, self._job)
        self._judged |= controllers

    async def _until_over(self) -> None:
        """Read all logs to their end once the job has ended or is gone."""
        document = self._job.object
        try:
            async with aclosing(follow(self._kube, self._job.ref, objects=[document])) as changes:
                change = Change("MODIFIED", document)
                while not _is_over(change):
                    change = await anext(changes)
            for pod in await pods_of(self._kube, self._job):
                self._begin(pod)
            while self._streams:
                await asyncio.wait(self._streams)
            await self._lines.put(None)
        except EdgeAIError as error:
            await self._lines.put(error)

    def _begin(self, pod: Object) -> None:
        if not has_worker(pod, self._worker):
            return
        entries = mappings(mapping(pod.get("status")).get("containerStatuses"))
        statuses = {str(entry.get("name")): entry for entry in entries}
        for source in _sources(pod):
            entry = statuses.get(source.container, {})
            state = mapping(entry.get("state"))
            run = (str(pod["metadata"]["uid"]), source.container, int(entry.get("restartCount", 0)))
            if run not in self._runs and ("running" in state or "terminated" in state):
                self._runs.add(run)
                task = asyncio.create_task(self._pass_on(source), name=source.worker)
                self._streams.add(task)
                task.add_done_callback(self._streams.discard)

    async def _pass_on(self, source: _Source) -> None:
        async with aclosing(_lines(self._kube, source, self._part, is_followed=True)) as lines:
            async for line in lines:
                await self._lines.put(line)


def _controllers(pod: Object, *, of_kubernetes: bool = False) -> set[str]:
    """The uids of the pod's controllers.

    Args: of_kubernetes: only of controllers that Kubernetes makes for a child, and of such children
    """
    kinds = [type_.kind for pair in POD_CONTROLLERS.items() for type_ in pair]
    return {
        str(controller.get("uid"))
        for controller in controllers(pod)
        if not of_kubernetes or controller.get("kind") in kinds
    }


def _is_over(change: Change) -> bool:
    """Whether nothing more will run: the job has ended, or is gone. A service never ends."""
    ends = [entry.type for entry in conditions_of(change.object) if entry.status == "True"]
    return change.type == "DELETED" or bool({"Succeeded", "Complete", "Failed"}.intersection(ends))
