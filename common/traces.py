"""Traces of the way of tasks, sent to an OpenTelemetry collector by OTLP over HTTP.

Both managers use this module where the setting traces_endpoint names a collector; else neither the
module's library nor a thread exists. The id of a trace comes from the task, its uid and its
version, so the spans of both managers are in one trace, and no message carries an id. Spans wait in
a bounded queue, and a thread of the library sends them: a collector that is away costs spans, and
delays nothing. A span has names of the task, the node and the worker, and nothing else of a job.
"""

import asyncio
import hashlib
import logging
import math
import threading
import time
from typing import Any, Final, NamedTuple

from common.settings import check_url
from common.tasks import wait_at_most
from edgeai.errors import SettingsError
from edgeai.ids import TaskKey, Uid

MAX_SPANS: Final = 2048
"""Spans that wait to be sent; further ones are dropped."""
SEND_S: Final = 5.0
CLOSE_S: Final = 1.0
"""Time that the end of the process gives to spans that wait."""
LOG_EVERY_S: Final = 60.0
"""Seconds between two lines of the log about a collector that is away."""
_TRACE_BYTES: Final = 16
_SPAN_BYTES: Final = 8
_FLAG: Final = "flag --traces-endpoint"


class Version(NamedTuple):
    """One version of a task, whose way is one trace."""

    key: TaskKey
    uid: Uid
    version: int

    def id(self, size: int) -> int:
        text = "\0".join(map(str, self))
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[-size:])


class Traces:
    """Raises: SettingsError when the endpoint is no URL, or the library is not installed"""

    def __init__(self, endpoint: str, *, service: str, instance: str) -> None:
        check_url(_FLAG, endpoint, like="http://collector:4318")
        # Here, because they take 9 MiB, and only a process that sends traces needs them.
        try:
            from opentelemetry import trace
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
        except ImportError as error:
            raise SettingsError(_FLAG, f"needs the extra traces of edgeai: {error}") from error

        class Ids(RandomIdGenerator):
            """Gives a root span the ids of its version, and all other spans random ids."""

            root: Version | None = None

            def generate_trace_id(self) -> int:
                return self.root.id(_TRACE_BYTES) if self.root else super().generate_trace_id()

            def generate_span_id(self) -> int:
                return self.root.id(_SPAN_BYTES) if self.root else super().generate_span_id()

        logging.getLogger(OTLPSpanExporter.__module__).addFilter(_OnceInAWhile())
        self._trace = trace
        self._ids = Ids()
        names = {"service.name": service, "service.instance.id": instance}
        self._provider = TracerProvider(
            resource=Resource(names), id_generator=self._ids, shutdown_on_exit=False
        )
        exporter = OTLPSpanExporter(f"{endpoint.rstrip('/')}/v1/traces", timeout=SEND_S)
        self._provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=MAX_SPANS))
        self._tracer = self._provider.get_tracer("edgeai")

    def whole(self, version: Version, *, since: float) -> None:
        """Record the whole way of a version, which ends now. Args: since: as of `now`"""
        self._ids.root = version
        self._record("task", version, None, since, {})
        self._ids.root = None

    def step(self, name: str, version: Version, *, since: float, **names: str) -> None:
        """Record one step of the way, which ends now. Args: since: its beginning, as of `now`"""
        trace = self._trace
        root = trace.SpanContext(
            version.id(_TRACE_BYTES),
            version.id(_SPAN_BYTES),
            is_remote=True,
            trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED),
        )
        context = trace.set_span_in_context(trace.NonRecordingSpan(root))
        self._record(name, version, context, since, names)

    def _record(
        self, name: str, version: Version, context: Any, since: float, names: dict[str, str]
    ) -> None:
        end_ns = time.time_ns()
        lasted_ns = int((now() - since) * 1e9)
        attributes: dict[str, str | int] = {
            "edgeai.task": version.key,
            "edgeai.uid": version.uid,
            "edgeai.version": version.version,
            **{f"edgeai.{key}": text for key, text in names.items()},
        }
        span = self._tracer.start_span(
            name, context, start_time=end_ns - max(0, lasted_ns), attributes=attributes
        )
        span.end(end_ns)

    async def close(self) -> None:
        """Send what waits, for at most CLOSE_S. The thread ends with the process in any case."""
        loop, end = asyncio.get_running_loop(), asyncio.Event()

        def shut_down() -> None:
            self._provider.shutdown()
            if not loop.is_closed():
                loop.call_soon_threadsafe(end.set)

        threading.Thread(target=shut_down, name="end of traces", daemon=True).start()
        await wait_at_most(CLOSE_S, end)


class _OnceInAWhile(logging.Filter):
    """Lets one line in LOG_EVERY_S through: the library logs each attempt to send spans."""

    def __init__(self) -> None:
        super().__init__()
        self._next = -math.inf

    def filter(self, _record: logging.LogRecord) -> bool:
        at = now()
        if at < self._next:
            return False
        self._next = at + LOG_EVERY_S
        return True


def now() -> float:
    """The clock of all steps, seconds. uvloop's own clock stands still within one turn."""
    return time.monotonic()
