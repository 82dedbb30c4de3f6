"""The last lines of the logs of crashed containers, for the faults of a job."""

import asyncio
import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import aclosing, suppress
from datetime import datetime
from typing import Final

import msgspec

from edgeai.api.resources import PODS, Object, ref_of
from edgeai.client.state import State, state_of
from edgeai.errors import EdgeAIError
from edgeai.faults.faults import Fault
from edgeai.faults.pod_faults import examine
from edgeai.faults.remedies import Cause
from edgeai.kube.client import KubeClient
from edgeai.text import printable, shortened

MAX_LOGS: Final = 3  # logs that are read for one job
MAX_LINES: Final = 5
MAX_LINE_CHARS: Final = 200
_LIMIT_BYTES: Final = 64 * 1024  # of one log, with the part of its lines that is not shown
_DEADLINE_S: Final = 5.0  # a node that is out of contact gives no log


async def state_with_logs(
    kube: KubeClient, object_: Object, pods: Sequence[Object], now: datetime | None = None
) -> State:
    """`state_of`, with the last lines of the first crashed containers, as far as there are any."""
    state = state_of(object_, pods, now)
    logs = itertools.islice(_crashes(state.faults, pods, now), MAX_LOGS)
    lines = await asyncio.gather(*(_with_log(kube, *log) for log in logs))
    faults = dict(enumerate(state.faults)) | dict(lines)
    return msgspec.structs.replace(state, faults=tuple(faults.values()))


def _crashes(
    faults: Iterable[Fault], pods: Iterable[Object], now: datetime | None
) -> Iterator[tuple[int, Fault, Object, Fault]]:
    """(number, fault, pod, crash). A fault from a condition has only the pod's name."""
    by_name = {str(pod["metadata"]["name"]): pod for pod in pods}
    for number, fault in enumerate(faults):
        pod = by_name.get(fault.worker)
        if pod is None or fault.cause != Cause.CRASH:
            continue
        faults_of_pod = examine([pod], now).faults
        crashes = (crash for crash in faults_of_pod if crash.cause == Cause.CRASH)
        if (crash := next(crashes, None)) and crash.container:
            yield number, fault, pod, crash


async def _with_log(
    kube: KubeClient, number: int, fault: Fault, pod: Object, crash: Fault
) -> tuple[int, Fault]:
    stream = kube.log_lines(
        ref_of(PODS, pod),
        container=crash.container,
        tail=MAX_LINES,
        is_previous=crash.is_previous,
        limit_bytes=_LIMIT_BYTES,
    )
    log: deque[str] = deque(maxlen=MAX_LINES)
    with suppress(EdgeAIError, TimeoutError):
        async with asyncio.timeout(_DEADLINE_S), aclosing(stream) as lines:
            async for line in lines:
                _, _, text = line.decode(errors="replace").partition(" ")  # without the time
                log.append(shortened(printable(text), MAX_LINE_CHARS))
    return number, msgspec.structs.replace(fault, log=tuple(log))
