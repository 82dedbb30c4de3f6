"""What a training job remembers of its pods: who is done, and how often each replica restarted.

Pods disappear: the garbage collector removes finished ones, nodes are lost, people delete them. So
the status keeps what the pods told. A failure is first counted in the status. Only then, in a later
plan, the failed pod is deleted, because its attempt is lower than the attempt that the status asks
for. So a crash between the two steps loses no failure and counts none twice. A pod that is being
deleted tells nothing: its processes end because of the deletion, with any exit code.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from edgeai.api.objects import is_being_deleted
from edgeai.api.pod_state import phase_of
from edgeai.api.resources import Object
from edgeai.api.status import mapping, mappings
from edgeai.api.training import RestartPolicy, RestartScope
from globalmanager.contract import Observed
from globalmanager.kinds.shared import status
from globalmanager.kinds.shared.attempts import MAX_RESTARTS, attempt_of
from globalmanager.kinds.shared.lifecycle import own_pods
from globalmanager.kinds.training import replicas, waiting
from globalmanager.kinds.training.framework import Framework, KubeflowJob, Replicas

_RETRYABLE_FROM = 128  # exit codes of 128 + number say that a signal ended the process
_EARLIER = "earlier"
"""Stands in .status.containerRestarts for all pods that are gone."""


class History(NamedTuple):
    """Names are names of replicas, which are also the names of their pods."""

    finished: frozenset[str]
    restarts: Mapping[str, int]
    job_restarts: int
    container_restarts: Mapping[str, int] = {}
    """Uid of a pod -> restarts of its containers by the node. Empty without a backoff limit."""

    def attempt(self, name: str) -> int:
        """The attempt that the pod of this replica must have."""
        return self.restarts.get(name, 0) + self.job_restarts

    @property
    def total(self) -> int:
        """The restarts of all replicas and containers. A restart of the whole job counts once."""
        containers = sum(self.container_restarts.values())
        return sum(self.restarts.values()) + self.job_restarts + containers

    def after(self, failed: list["Failure"], scope: RestartScope | None) -> "History":
        """The history after a restart of these replicas, or of the whole job.

        The next attempt is above that of each failed pod, also after a reset of the status.
        """
        # All replicas start together, so the finished ones run again too.
        if scope is RestartScope.JOB:
            job_restarts = [attempt_of(one.pod) - self.restarts.get(one.name, 0) for one in failed]
            number = max(self.job_restarts, *job_restarts) + 1
            return self._replace(finished=frozenset(), job_restarts=number)
        replica_restarts = {
            one.name: max(self.attempt(one.name), attempt_of(one.pod)) - self.job_restarts + 1
            for one in failed
        }
        return self._replace(restarts={**self.restarts, **replica_restarts})

    @property
    def fields(self) -> dict[str, Any]:
        """The status fields. None removes a field."""
        return {
            "finished": sorted(self.finished) or None,
            "restarts": dict(sorted(self.restarts.items())) or None,
            "jobRestarts": self.job_restarts or None,
            "containerRestarts": dict(sorted(self.container_restarts.items())) or None,
        }


class Failure(NamedTuple):
    """A replica whose pod has failed."""

    name: str
    type: str
    pod: Object
    exit_code: int | None
    """None when the pod has no exit code, for example because the node evicted the pod."""
    is_retryable: bool


def history_of(observed: Observed, spec: KubeflowJob) -> History:
    """The history of the replicas that the spec has, with what the pods have told since."""
    names = {name for name, _, _ in replicas.names(observed.ref.name, spec)}
    recorded = status.status_of(observed)
    # A status can hold anything, and the spec may have fewer replicas than before.
    names_in_status = recorded.get("finished")
    entries = names_in_status if isinstance(names_in_status, list) else ()
    finished = {name for name in entries if isinstance(name, str) and name in names}
    restarts = {
        name: _count(number)
        for name, number in mapping(recorded.get("restarts")).items()
        if name in names and _count(number)
    }
    history = History(frozenset(finished), restarts, _count(recorded.get("jobRestarts")))
    # The success of a pod from before a restart does not finish the present attempt.
    succeeded = {
        name
        for name, pod in pods_by_name(observed).items()
        if name in names
        # A drain may end a master with code 0, which is no success of the job.
        and phase_of(pod) == "Succeeded"
        and not is_being_deleted(pod)
        and attempt_of(pod) >= history.attempt(name)
    }
    # Without a limit nobody reads the numbers, and each crash would cost a write of the status.
    is_limited = spec.policy.backoff_limit is not None
    return history._replace(
        finished=history.finished | succeeded,
        container_restarts=_container_restarts(observed) if is_limited else {},
    )


def _count(value: Any) -> int:
    """A status can hold anything."""
    return value if type(value) is int and 0 < value <= MAX_RESTARTS else 0


def pods_by_name(observed: Observed) -> dict[str, Object]:
    return {pod["metadata"]["name"]: pod for pod in own_pods(observed)}


def failures(observed: Observed, spec: KubeflowJob, history: History) -> list[Failure]:
    """The failed pods of the present attempt. The history has the earlier attempts already."""
    pods = pods_by_name(observed)
    return [
        _failure(spec.framework, name, replica, pods[name])
        for name, replica, _ in replicas.names(observed.ref.name, spec)
        if name in pods
        # A replica that is done stays done, whatever becomes of its pod.
        and name not in history.finished
        and phase_of(pods[name]) == "Failed"
        # A drain must not fail a job whose policy is Never.
        and not is_being_deleted(pods[name])
        and attempt_of(pods[name]) >= history.attempt(name)
        and not waiting.has_lost_room(observed, spec, replica.type, pods[name])
    ]


def _failure(framework: Framework, name: str, replica: Replicas, pod: Object) -> Failure:
    code = exit_code(framework, pod)
    is_retryable = {
        # Under these two the node restarts containers, so a pod fails by eviction or loss.
        RestartPolicy.ALWAYS: True,
        RestartPolicy.ON_FAILURE: True,
        RestartPolicy.NEVER: False,
        # Without an exit code the node or the cluster ended the pod. Upstream retries it, too.
        RestartPolicy.EXIT_CODE: code is None or code >= _RETRYABLE_FROM,
    }[replica.policy]
    return Failure(name, replica.type, pod, code, is_retryable)


def exit_code(framework: Framework, pod: Object) -> int | None:
    """The exit code of the container that trains; None when the pod does not tell a code."""
    # A sidecar may end with any code. As upstream, only the container that trains decides.
    name = replicas.trainer(framework, pod).get("name")
    for container in mappings(mapping(pod.get("status")).get("containerStatuses")):
        code = mapping(mapping(container.get("state")).get("terminated")).get("exitCode")
        if container.get("name") == name and isinstance(code, int):
            return code
    return None


def _container_restarts(observed: Observed) -> dict[str, int]:
    """The numbers of present pods, and one sum for those that are gone: the map stays small."""
    recorded = {
        uid: _count(number)
        for uid, number in mapping(status.status_of(observed).get("containerRestarts")).items()
    }
    earlier = recorded.pop(_EARLIER, 0)
    present: dict[str, int] = {}
    for pod in own_pods(observed):
        uid = pod["metadata"]["uid"]
        containers = mappings(mapping(pod.get("status")).get("containerStatuses"))
        number = sum(_count(container.get("restartCount")) for container in containers)
        # A cache that is older than the status must not take a restart back.
        present[uid] = max(recorded.pop(uid, 0), number)
    # A sum above MAX_RESTARTS would be read back as 0.
    present[_EARLIER] = min(earlier + sum(recorded.values()), MAX_RESTARTS)
    return {uid: number for uid, number in present.items() if number}
