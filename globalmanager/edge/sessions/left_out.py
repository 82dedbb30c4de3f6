"""Tells of tasks that a node does not get, because it has too many tasks (see quota).

A metric has the number of such tasks, the log names one now and then, and the user of a job gets an
Event. The rate of the Events is small, so that they delay no Event about a job of another tenant.
"""

from typing import Final

from common.clock import loop_time
from common.rate_limited_warning import RateLimitedWarning
from common.ratelimit import TokenBucket
from edgeai.ids import NodeName, TaskKey
from globalmanager.contract import Event, Severity
from globalmanager.edge.sessions.quota import NodeLimits
from globalmanager.edge.sessions.report_writer import Jobs, Recorder

TOO_MANY_TASKS: Final = "TooManyTasks"
EVENTS_PER_S: Final = 1.0
EVENTS_BURST: Final = 20


class LeftOutTasks:
    """Records an Event for each task that a node has no room for."""

    def __init__(self, *, jobs: Jobs, recorder: Recorder, limits: NodeLimits) -> None:
        self._jobs = jobs
        self._recorder = recorder
        self._limits = limits
        self._warning = RateLimitedWarning("too many tasks on one node")
        self._events = TokenBucket(
            qps=EVENTS_PER_S, burst=EVENTS_BURST, max_wait_s=0.0, part="Events about left out tasks"
        )

    def tell(self, node: NodeName, key: TaskKey) -> None:
        self._warning.log(node=node, task=key)
        job = self._jobs.find(key)
        if job is None or not self._events.admits(loop_time()):
            return
        limits = self._limits
        message = (
            f"node {node} does not get this job: a namespace may have {limits.tasks} jobs and "
            f"{limits.bytes} bytes of them on one node, and an equal part of the node's "
            f"{limits.node_tasks} jobs and {limits.node_bytes} bytes where more are wanted; the "
            "jobs with the first names have used this up; delete jobs or choose another node"
        )
        self._recorder.record(job.with_type(), Event(Severity.WARNING, TOO_MANY_TASKS, message))
