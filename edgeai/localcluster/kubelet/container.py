"""Runs one container of a pod again and again, as the restart policy says.

For each run, the container prepares, starts, probes and awaits a process. After a back-off the next
run begins, if the policy wants one. The pod writes changes of the record to the API.
"""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec

from common.logs import get_logger
from common.tasks import TaskGroup
from edgeai.localcluster.kubelet import probes
from edgeai.localcluster.kubelet.launch import (
    ContainerConfigError,
    ContainerStartError,
    Launch,
    pull_error,
)
from edgeai.localcluster.kubelet.process import ContainerExecution, ContainerProcess
from edgeai.localcluster.kubelet.status import (
    LOST_EXIT_CODE,
    ContainerRecord,
    running,
    should_restart,
    terminated,
    waiting,
)
from edgeai.localcluster.objects.resources import Object
from edgeai.times import rfc3339

if TYPE_CHECKING:
    from edgeai.localcluster.kubelet.pod import Pod

log = get_logger(__name__)

T = TypeVar("T")

START_ERROR_EXIT_CODE = 128
RETRY_FIRST_S, RETRY_MAX_S = 0.5, 5.0
PULL_TRY_S, PULL_FIRST_S, PULL_MAX_S = 0.5, 1.0, 60.0  # of an image that cannot be pulled


async def pause(event: asyncio.Event, limit_s: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            await event.wait()


async def retried(
    attempt: Callable[[], T],
    refusals: tuple[type[Exception], ...],
    on_refusal: Callable[[str], None],
    stop: asyncio.Event,
) -> T | None:
    """Make attempts until one succeeds, with waits that grow from RETRY_FIRST_S to RETRY_MAX_S.

    Args:
        refusals: the errors after which another attempt follows
        on_refusal: called with the reason of an attempt's failure, once for each new reason
    Returns: the result of the attempt; None if `stop` was set before
    """
    delay_s, last_reason = RETRY_FIRST_S, ""
    while not stop.is_set():
        try:
            return attempt()
        except refusals as error:
            if str(error) != last_reason:
                last_reason = str(error)
                on_refusal(last_reason)
        await pause(stop, delay_s)
        delay_s = min(RETRY_MAX_S, delay_s * 2)
    return None


class ContainerSettings(msgspec.Struct, frozen=True):
    restart_first_s: float = 1.0
    """Wait before the second restart in a row. The first restart is immediate."""
    restart_max_s: float = 60.0
    """Longest wait. Each further wait is twice the previous wait, up to this limit."""
    restart_reset_s: float = 600.0
    """Length of a run after which the next restart counts as the first restart again."""


class RestartBackoff:
    def __init__(self, settings: ContainerSettings) -> None:
        self._settings = settings
        self._restarts = 0  # restarts in a row

    def next_s(self, ran_s: float) -> float:
        """Seconds to wait before the next start, after a run that took `ran_s` seconds."""
        if ran_s >= self._settings.restart_reset_s:
            self._restarts = 0
        self._restarts += 1
        if self._restarts == 1:
            return 0.0
        # The exponent has a limit, because 2.0 ** 1024 overflows.
        wait_s = self._settings.restart_first_s * 2.0 ** min(self._restarts - 2, 64)
        return min(self._settings.restart_max_s, wait_s)


class Container:
    """Args:
    record: after a restart of the cluster, the state before the restart
    policy: restart policy of this container: Always, OnFailure or Never
    """

    def __init__(self, spec: Object, record: ContainerRecord, pod: "Pod", policy: str) -> None:
        self.record = record
        self._spec = spec
        self._name = str(spec["name"])
        self._pod = pod
        self._policy = policy
        self._backoff = RestartBackoff(pod.host.settings)
        self._process: ContainerProcess | None = None
        self._executions: list[ContainerExecution] = []  # commands of clients
        self._kill_timer: asyncio.TimerHandle | None = None
        self._stopping = asyncio.Event()

    async def run(self) -> int:
        """Run the container until it needs no further run. Returns: the last exit code."""
        loop = asyncio.get_running_loop()
        self._record_lost_run()
        while self._should_run():
            start_s = loop.time()
            try:
                await self._pull()
                prepare = partial(self._pod.prepare, self._spec)
                refusals = (ContainerConfigError,)
                launch = await retried(prepare, refusals, self._report_config, self._stopping)
                start_s = loop.time()
                if launch:
                    await self._execute(launch)
            except (ContainerStartError, OSError) as error:
                self._record_failed_start(str(error))
            if self._should_run():
                await self._back_off(self._backoff.next_s(loop.time() - start_s))
        self._pod.publish()
        return self.record.exit_code or 0

    def _should_run(self) -> bool:
        code = self.record.exit_code
        policy_wants_it = code is None or should_restart(self._policy, code)
        return policy_wants_it and not self._stopping.is_set()

    async def execute(self, command: Sequence[str]) -> ContainerExecution | None:
        """Run a command beside the container's process. Returns: None when no process runs

        Raises: ContainerConfigError, ContainerStartError, OSError
        """
        process = self._process
        if process is None:
            return None
        launch = self._pod.prepare(self._spec, command)
        execution = await ContainerExecution.start(launch, self._pod.host.reaper)
        self._executions = [entry for entry in self._executions if not entry.has_ended]
        self._executions.append(execution)
        if self._process is not process:  # the container has ended meanwhile
            execution.kill()
        return execution

    def terminate(self, grace_s: float) -> None:
        """Send SIGTERM to the process, and SIGKILL after `grace_s` seconds.

        After several calls, the earliest time of a SIGKILL counts.
        """
        if self._process is not None:
            if not self._stopping.is_set():
                self._process.signal(signal.SIGTERM)
            self._kill_within(self._process, grace_s)
        self._stopping.set()

    def _kill_within(self, process: ContainerProcess, grace_s: float) -> None:
        loop = asyncio.get_running_loop()
        kill_at = loop.time() + max(grace_s, 0.0)
        if self._kill_timer is None or kill_at < self._kill_timer.when():
            self._cancel_kill()
            self._kill_timer = loop.call_at(kill_at, process.signal, signal.SIGKILL)

    def _record_lost_run(self) -> None:
        """Record the end of a process that ran before this cluster started."""
        state = self.record.state.get("running")
        if state is None:
            return
        end = terminated(
            LOST_EXIT_CODE,
            started_at=state["startedAt"],
            finished_at=rfc3339(self._pod.host.now()),
            container_id=self.record.container_id,
            reason="ContainerStatusUnknown",
            message="The container was gone when the cluster started again",
        )
        self.record.end(end)

    async def _pull(self) -> None:
        """Return at once, because this cluster needs no image. Only an image whose registry has a
        name that never exists (RFC 2606) is tried until the pod is terminated.
        """
        image, delay_s = str(self._spec.get("image", "")), PULL_FIRST_S
        error = pull_error(image)
        while error and not self._stopping.is_set():
            self.record.enter(waiting("ErrImagePull", error))
            self._pod.warning("Failed", f'Failed to pull image "{image}": {error}')
            self._pod.publish()
            await pause(self._stopping, PULL_TRY_S)
            message = f'Back-off pulling image "{image}": ErrImagePull: {error}'
            self.record.enter(waiting("ImagePullBackOff", message))
            self._pod.publish()
            await pause(self._stopping, delay_s)
            delay_s = min(PULL_MAX_S, delay_s * 2)

    def _report_config(self, why: str) -> None:
        self.record.enter(waiting("CreateContainerConfigError", why))
        self._pod.warning("Failed", f"Error: {why}")
        self._pod.publish()

    async def _execute(self, launch: Launch) -> None:
        with contextlib.closing(self._pod.open_log(self._name, self.record.next_run)) as output:
            process = ContainerProcess(launch, self._pod.host.reaper, output.write)
            try:
                await self._supervise(process, launch)
            finally:
                self._process = None
                self._cancel_kill()
                for execution in self._executions:
                    execution.kill()
                process.close()

    async def _supervise(self, process: ContainerProcess, launch: Launch) -> None:
        self._process = process
        started_at = rfc3339(self._pod.host.now())
        self._record_start(process, started_at)
        name = f"probes of {self._name} in {self._pod.where}"
        probing = asyncio.create_task(self._probe(process, launch), name=name)
        try:
            code = await process.wait()
        finally:
            probing.cancel()
            await asyncio.wait([probing])
        self.record.end(
            terminated(
                code,
                started_at=started_at,
                finished_at=rfc3339(self._pod.host.now()),
                container_id=self.record.container_id,
            )
        )
        log.info("container ended", container=self._name, pod=self._pod.where, exit_code=code)

    def _record_failed_start(self, why: str) -> None:
        """Record a failed start of the container as a run that ended at once."""
        now = rfc3339(self._pod.host.now())
        self._pod.warning("Failed", f"Error: {why}")
        self.record.run(running(now), "")
        self.record.end(
            terminated(
                START_ERROR_EXIT_CODE,
                started_at=now,
                finished_at=now,
                reason="StartError",
                message=why,
            )
        )

    def _record_start(self, process: ContainerProcess, started_at: str) -> None:
        self.record.run(running(started_at), f"process://{process.pid}")
        self.record.ready = not self._spec.get("readinessProbe")
        log.info("container started", container=self._name, pod=self._pod.where, pid=process.pid)
        self._pod.normal("Started", f"Started container {self._name}")
        self._pod.publish()

    async def _probe(self, process: ContainerProcess, launch: Launch) -> None:
        try:
            readiness, liveness = (
                probes.parse_probe(self._spec, kind) for kind in ("readinessProbe", "livenessProbe")
            )
            target = self._probe_target(launch)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self._pod.warning("Unhealthy", f"probes of {self._name} are invalid: {error!r}")
            return
        async with TaskGroup() as tasks:
            for kind, probe, healthy, on_change in (
                ("Readiness", readiness, False, self._turn_ready),
                ("Liveness", liveness, True, partial(self._kill_unhealthy, process)),
            ):
                if probe:
                    failed = partial(self._report, kind)
                    watch = probes.watch_probe(
                        probe, target, healthy=healthy, on_change=on_change, failed=failed
                    )
                    tasks.create_task(watch, name=f"{kind} of {self._name}")

    def _probe_target(self, launch: Launch) -> probes.ProbeTarget:
        ports = {
            str(port["name"]): int(port["containerPort"])
            for port in self._spec.get("ports") or []
            if port.get("name")
        }
        return probes.ProbeTarget(
            pod_ip=self._pod.pod_ip,
            ports=ports,
            moved_ports=launch.moved_ports,
            exec=partial(self._exec, launch),
        )

    def _turn_ready(self, ready: bool) -> None:
        self.record.ready = ready
        self._pod.publish()

    def _report(self, kind: str, why: str) -> None:
        self._pod.warning("Unhealthy", f"{kind} probe failed: {why}")

    def _kill_unhealthy(self, process: ContainerProcess, _: bool) -> None:
        """End a process whose probe failed. The restart policy then decides about the next run."""
        process.signal(signal.SIGTERM)
        self._kill_within(process, self._pod.grace_s)

    async def _exec(self, launch: Launch, command: Sequence[str]) -> int:
        """The exit code of an exec probe's command in the container's environment."""
        probe = msgspec.structs.replace(launch, executable="/usr/bin/env", argv=("env", *command))
        reaper = self._pod.host.reaper
        with contextlib.closing(ContainerProcess(probe, reaper, lambda _: None)) as process:
            return await process.wait()

    async def _back_off(self, delay_s: float) -> None:
        if delay_s <= 0:
            return
        message = f"back-off {delay_s:g}s restarting failed container={self._name}"
        self.record.enter(waiting("CrashLoopBackOff", f"{message} pod={self._pod.where}"))
        self._pod.warning("BackOff", f"Back-off restarting failed container {self._name}")
        self._pod.publish()
        await pause(self._stopping, delay_s)

    def _cancel_kill(self) -> None:
        if self._kill_timer:
            self._kill_timer.cancel()
            self._kill_timer = None
