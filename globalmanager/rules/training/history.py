"""What a training job remembers of its pods: who is done, and how often each replica started anew.

Pods disappear: the garbage collector removes finished ones, nodes are lost, people delete them. So
the status keeps what the pods told. A failure is first counted in the status. Only then, in a later
plan, the failed pod is deleted, because its attempt is lower than the attempt that the status asks
for. So a crash between the two steps loses no failure and counts none twice. A pod that is being
deleted tells nothing: its processes end because of the deletion, with any exit code.
"""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from globalmanager.contract import Object, Observed
from globalmanager.rules import status
from globalmanager.rules.faults import phase_of
from globalmanager.rules.lifecycle import own_pods
from globalmanager.rules.objects import is_being_deleted
from globalmanager.rules.status import mapping
from globalmanager.rules.training import replicas
from globalmanager.rules.training.forms import Replicas, RestartPolicy, RestartScope
from globalmanager.rules.training.framework import Framework, TrainingJob

_RETRYABLE_FROM = 128  # exit codes of 128 + number say that a signal ended the process
_MAX_RESTARTS = 10**6


class History(NamedTuple):
    """Names are names of replicas, which are also the names of their pods."""

    finished: frozenset[str]
    restarts: Mapping[str, int]
    job_restarts: int

    def attempt(self, name: str) -> int:
        """The attempt that the pod of this replica must have."""
        return self.restarts.get(name, 0) + self.job_restarts

    @property
    def total(self) -> int:
        """The restarts of all replicas. A restart of the whole job counts once."""
        return sum(self.restarts.values()) + self.job_restarts

    def after(self, failed: list["Failure"], scope: RestartScope | None) -> "History":
        """The history after a restart of these replicas, or of the whole job.

        The next attempt is above the attempt of each failed pod, also when somebody has reset the
        status. So each failure counts once.
        """
        if scope is RestartScope.JOB:
            known = [
                replicas.attempt_of(one.pod) - self.restarts.get(one.name, 0) for one in failed
            ]
            return History(frozenset(), self.restarts, max(self.job_restarts, *known) + 1)
        counted = {
            one.name: max(self.attempt(one.name), replicas.attempt_of(one.pod))
            - self.job_restarts
            + 1
            for one in failed
        }
        return self._replace(restarts={**self.restarts, **counted})

    @property
    def fields(self) -> dict[str, Any]:
        """The status fields. None removes a field."""
        return {
            "finished": sorted(self.finished) or None,
            "restarts": dict(sorted(self.restarts.items())) or None,
            "jobRestarts": self.job_restarts or None,
        }


class Failure(NamedTuple):
    """A replica whose pod has failed."""

    name: str
    type: str
    pod: Object
    exit_code: int | None
    """None when the pod has no exit code, for example because the node evicted the pod."""
    is_retryable: bool


def known(observed: Observed, names: Collection[str]) -> History:
    """The history of the replicas that the spec has, with the pods that have succeeded since.

    Args: names: of all replicas that the spec has
    """
    told = status.of(observed)
    listed = told.get("finished")
    entries = listed if isinstance(listed, list) else ()
    finished = {name for name in entries if isinstance(name, str) and name in names}
    restarts = {
        name: _count(number)
        for name, number in mapping(told.get("restarts")).items()
        if name in names and _count(number)
    }
    history = History(frozenset(finished), restarts, _count(told.get("jobRestarts")))
    succeeded = {
        name
        for name, pod in pods_by_name(observed).items()
        if name in names
        and phase_of(pod) == "Succeeded"
        and not is_being_deleted(pod)
        and replicas.attempt_of(pod) >= history.attempt(name)
    }
    return history._replace(finished=history.finished | succeeded)


def _count(value: Any) -> int:
    """A status can hold anything."""
    return value if type(value) is int and 0 < value <= _MAX_RESTARTS else 0


def pods_by_name(observed: Observed) -> dict[str, Object]:
    return {pod["metadata"]["name"]: pod for pod in own_pods(observed)}


def failures(observed: Observed, spec: TrainingJob, history: History) -> list[Failure]:
    """The failed pods of the present attempt. The history has the earlier attempts already."""
    pods = pods_by_name(observed)
    return [
        _failure(spec.framework, name, each, pods[name])
        for name, each, _ in replicas.names(observed.ref.name, spec)
        if name in pods
        and name not in history.finished
        and phase_of(pods[name]) == "Failed"
        and not is_being_deleted(pods[name])
        and replicas.attempt_of(pods[name]) >= history.attempt(name)
    ]


def _failure(framework: Framework, name: str, each: Replicas, pod: Object) -> Failure:
    code = exit_code(framework, pod)
    is_retryable = {
        RestartPolicy.ALWAYS: True,
        RestartPolicy.ON_FAILURE: True,
        RestartPolicy.NEVER: False,
        RestartPolicy.EXIT_CODE: code is None or code >= _RETRYABLE_FROM,
    }[each.policy]
    return Failure(name, each.type, pod, code, is_retryable)


def exit_code(framework: Framework, pod: Object) -> int | None:
    """The exit code of the container that trains; None when the pod does not tell a code."""
    entries = mapping(pod.get("status")).get("containerStatuses")
    states = [mapping(entry) for entry in entries] if isinstance(entries, list) else []
    name = replicas.trainer(framework, pod).get("name")
    for state in states:
        code = mapping(mapping(state.get("state")).get("terminated")).get("exitCode")
        if state.get("name") == name and isinstance(code, int):
            return code
    return None


def container_restarts(observed: Observed) -> int:
    """How often the nodes have started containers of running pods again."""
    return sum(
        _count(mapping(entry).get("restartCount"))
        for pod in own_pods(observed)
        if phase_of(pod) == "Running"
        for entry in _containers(pod)
    )


def _containers(pod: Object) -> list[Any]:
    entries = mapping(pod.get("status")).get("containerStatuses")
    return entries if isinstance(entries, list) else []
