"""plan of a training job whose replicas may be out of contact: on edge nodes, and on lost nodes.

`training.plan` makes the plan. It gets the pods corrected by the last reports of their nodes, so
it decides nothing by contact:

- What the LocalController of a pod's node reports as the pod's end counts, also when the pod's
  status is stale because the kubelet has no contact.
- A replica is out of contact when the LocalController of its node has no contact, and its kubelet
  is silent too. On a node that had a session since the start of this GlobalManager, a kubelet is
  also silent when it has not accepted the pod 60 s after its creation. For the grace time of the
  job the replica counts as what it was. Nothing is deleted or made again. The condition
  EdgeConnected names the replica on an edge node.
- After the grace time the replica counts as lost, which is a failure without an exit code. Its pod
  is deleted by force, because no kubelet confirms the deletion and the next pod needs its name. An
  ended job needs no next pod, so its pods wait for their kubelets.
- A suspended job needs no next pod either, and its pods keep their part of a quota while their
  processes may run. What a suspension has deleted is no failure of the resumed job.

.status.outOfContact has the time at which a GlobalManager first saw a replica out of contact. So a
restart of the GlobalManager neither shortens nor prolongs the grace time.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec

from edgeai.api import deletions
from edgeai.api.objects import is_being_deleted
from edgeai.api.pod_state import node_of, phase_of
from edgeai.api.resources import PODS, Object, ObjectRef
from edgeai.api.status import Finding, Truth, condition_of, mapping, mappings, parse_time
from edgeai.ids import NodeName
from edgeai.text import listing
from edgeai.times import rfc3339
from globalmanager.contract import Action, Delete, Observed, Plan
from globalmanager.kinds.shared import contacts, status
from globalmanager.kinds.shared.contacts import EDGE_CONNECTED
from globalmanager.kinds.shared.job_conditions import ENDS, State
from globalmanager.kinds.shared.lifecycle import Timers, has_ended
from globalmanager.kinds.shared.silent_nodes import silent_since
from globalmanager.kinds.training import edge_placement, plan, replicas
from globalmanager.kinds.training.edge_reports import Word, word_of

_END_PHASES: Final = ("Succeeded", "Failed")
_NODE_LOST: Final = "NodeLost"
# A pod that no kubelet accepts tolerates the silence of its node, so Kubernetes leaves it there.
_ACCEPTED_WITHIN_S: Final = 60.0
# One lost line can cut off a thousand replicas, and a message must stay short.
_MAX_NAMED: Final = 10


class _Pods(NamedTuple):
    """The pods of a job, corrected by the last reports of their nodes."""

    observed: Observed
    out: Mapping[str, datetime]
    """Replica -> since when it is out of contact. Replicas that are lost by now included."""
    overdue: frozenset[str]
    """Replicas that are out of contact for longer than the grace time, and so count as lost."""
    unconfirmed: frozenset[ObjectRef]
    """Pods that have ended, or are lost, without a kubelet that could confirm a deletion."""
    leftovers: tuple[Delete, ...]
    """Forced deletions of pods that a suspension has deleted, and that are overdue by now."""


def plan_across_edge(observed: Observed, now: datetime) -> Plan:
    if has_ended(observed, ENDS):
        return plan.plan(_with_final_words(observed), now)
    # The children of such a job stay as they are, so nothing depends on contact.
    if observed.invalid is not None or not plan.is_ours(observed):
        return plan.plan(observed, now)
    # `training.plan` sees corrected pods, so a node without contact looks to it like before.
    pods = _pods(observed, now)
    job_plan = plan.plan(_without_contact_condition(pods.observed), now)
    finding, waits = _finding(pods, now)
    all_stages = (pods.leftovers, *job_plan.stages)
    stages = tuple(s for s in (tuple(_forced(pods, observed, s)) for s in all_stages) if s)
    job_plan = msgspec.structs.replace(job_plan, stages=stages)
    return _with_contact_status(observed, pods, job_plan, finding, waits, now)


# ---- the corrected pods -------------------------------------------------------------------------


def _with_final_words(observed: Observed) -> Observed:
    """The pods of an ended job. A pod whose node reports its end stays, where the job keeps it."""
    corrections = {
        ref: _with_reported_end(pod, word)
        for ref, pod in _own_pods(observed)
        if not is_being_deleted(pod)
        and (word := word_of(observed, pod)) is not None
        and _outranks(pod, word)
    }
    return _with_pods(observed, corrections) if corrections else observed


def _pods(observed: Observed, now: datetime) -> _Pods:
    grace = timedelta(seconds=edge_placement.grace_s(observed))
    corrections: dict[ObjectRef, Object] = {}
    out: dict[str, datetime] = {}
    lost_names: set[str] = set()
    unconfirmed: set[ObjectRef] = set()
    leftovers: list[Delete] = []
    for ref, pod in _own_pods(observed):
        if deletions.is_confirmed(pod):  # no kubelet has a say any more
            continue
        word = word_of(observed, pod)
        # The node saw the processes end. Without the kubelet's contact the API still shows them.
        if word is not None and _outranks(pod, word):
            corrections[ref] = _with_reported_end(pod, word)
            if silent_since(pod) is not None:
                unconfirmed.add(ref)
            continue
        since = _out_since(observed, pod, word, now)
        if since is None:
            continue
        # Lost contact alone changes nothing: the replica counts as what it was.
        out[ref.name] = since
        if observed.spec.policy.suspend:
            continue
        # The user's grace time, not the cloud's eviction, says when the job goes on without it.
        is_overdue = now - since >= grace
        if is_overdue:
            lost_names.add(ref.name)
            unconfirmed.add(ref)
        if not _is_leftover(observed, pod, now):
            # The taint manager may have deleted the pod, but no kubelet carries this out.
            corrections[ref] = _with_node_lost(pod, since) if is_overdue else _without_deletion(pod)
        elif is_overdue:
            leftovers.append(Delete(ref, pod["metadata"]["uid"]))
    corrected = _with_pods(observed, corrections) if corrections else observed
    return _Pods(corrected, out, frozenset(lost_names), frozenset(unconfirmed), tuple(leftovers))


def _is_leftover(observed: Observed, pod: Object, now: datetime) -> bool:
    """Whether the deletion of the pod began before the job was resumed."""
    suspended = status.condition(observed, State.SUSPENDED)
    start = deletions.began(pod)
    if not suspended or start is None:
        return False
    is_resuming = suspended.get("status") == Truth.TRUE  # the plan of this moment resumes the job
    resumed = now if is_resuming else parse_time(status.status_of(observed).get("startTime"))
    return resumed is not None and start <= resumed


def _own_pods(observed: Observed) -> Iterable[tuple[ObjectRef, Object]]:
    return ((ref, pod) for ref, pod in observed.children.items() if ref.type == PODS)


def _with_pods(observed: Observed, pods: Mapping[ObjectRef, Object]) -> Observed:
    return msgspec.structs.replace(observed, children={**observed.children, **pods})


def _outranks(pod: Object, word: Word) -> bool:
    """Whether the word of the node counts more than the pod's status.

    A status that has no exit code may be from a controller that gave the pod up. A pod that a
    kubelet deletes ends because of the deletion, so its end says nothing about the training.
    """
    if not word.is_final or (phase_of(pod) in _END_PHASES and _has_exit_code(pod)):
        return False
    return not is_being_deleted(pod) or silent_since(pod) is not None


def _has_exit_code(pod: Object) -> bool:
    entries = mapping(pod.get("status")).get("containerStatuses")
    states = [mapping(entry.get("state")) for entry in mappings(entries)]
    return any("exitCode" in mapping(state.get("terminated")) for state in states)


def _unaccepted_since(pod: Object) -> datetime | None:
    """When the kubelet should have accepted the pod at the latest; None when the kubelet has done
    so. A kubelet that accepts a pod writes its startTime.

    None also for an unbound pod: its template names the node, and another would wait there, too.
    """
    is_accepted = "startTime" in mapping(pod.get("status")) or phase_of(pod) != "Pending"
    is_bound = condition_of(pod, "PodScheduled").get("status") == "True"
    creation = parse_time(pod["metadata"].get("creationTimestamp"))
    if is_accepted or creation is None or not is_bound:
        return None
    return creation + timedelta(seconds=_ACCEPTED_WITHIN_S)


def _out_since(
    observed: Observed, pod: Object, word: Word | None, now: datetime
) -> datetime | None:
    """Since when the replica is out of contact; None when it is in contact.

    A node whose LocalController has reported the pod, but has had no session since the start of
    this GlobalManager, may connect any moment, so its silence counts from now.
    """
    contact = observed.contacts.get(NodeName(node_of(pod)))
    if contact is not None and contact.connected:
        return None
    silent = silent_since(pod)
    if silent is None and contact is not None:
        silent = _unaccepted_since(pod)
    # The kubelet has contact, or still has time to accept the pod.
    if silent is None or silent > now:
        return None
    # A GlobalManager that restarts goes on with the same time.
    recorded = mapping(status.status_of(observed).get("outOfContact")).get(pod["metadata"]["name"])
    since = parse_time(recorded)
    if since is None and contact is not None:
        since = contact.since
    elif since is None and word is not None:
        since = now
    # Until the later of the two times one witness still had contact. A node that never sent a word
    # has no LocalController, so only the silence of its kubelet counts.
    return silent if since is None else max(silent, since)


def _with_reported_end(pod: Object, word: Word) -> Object:
    """The pod as its node says that it has ended."""
    phase = "Succeeded" if word.status == "completed" else "Failed"
    # A report takes the form of a pod's status, so the rules about exit codes hold for both.
    ends = [
        {"name": name, "state": {"terminated": {"exitCode": code, "message": word.reason}}}
        for name, code in word.exit_codes.items()
    ]
    fields = {"phase": phase, "message": word.reason, "containerStatuses": ends}
    return {**_without_deletion(pod), "status": {**mapping(pod.get("status")), **fields}}


def _with_node_lost(pod: Object, since: datetime) -> Object:
    message = f"no contact since {rfc3339(since)}, longer than the job's grace time"
    # Without an exit code the loss is retryable for ExitCode, as an eviction is.
    fields = {"phase": "Failed", "reason": _NODE_LOST, "message": message, "containerStatuses": []}
    return {**_without_deletion(pod), "status": {**mapping(pod.get("status")), **fields}}


def _without_deletion(pod: Object) -> Object:
    """The pod without a deletion, which no kubelet carries out."""
    deletion_fields = ("deletionTimestamp", "deletionGracePeriodSeconds")
    metadata = {key: value for key, value in pod["metadata"].items() if key not in deletion_fields}
    return {**pod, "metadata": metadata}


# ---- the plan -----------------------------------------------------------------------------------


def _forced(pods: _Pods, observed: Observed, stage: Iterable[Action]) -> Iterator[Action]:
    """The actions. A deletion that no kubelet confirms is forced, and no pod is deleted twice."""
    for action in stage:
        if not isinstance(action, Delete) or action.ref.type != PODS:
            yield action
        # A usual deletion would wait for the kubelet and keep the name from the replica's next pod.
        elif action.ref in pods.unconfirmed:
            yield Delete(action.ref, action.uid, is_forced=True)
        # The plan saw this pod without its deletion, and a second one is a write for nothing.
        elif not is_being_deleted(observed.children[action.ref]):
            yield action


def _finding(pods: _Pods, now: datetime) -> tuple[Finding | None, Timers]:
    """The condition EdgeConnected, and the waits until it or a replica's state changes. None for a
    job that has no replica on a node with a LocalController.
    """
    observed = pods.observed
    at_edge = {
        ref.name: NodeName(node_of(pod))
        for ref, pod in _own_pods(observed)
        if phase_of(pod) not in _END_PHASES
        and (node_of(pod) in observed.contacts or word_of(observed, pod) is not None)
    }
    finding, contact_in_s = contacts.edge_connected(observed, {*at_edge.values()}, now)
    grace = timedelta(seconds=edge_placement.grace_s(observed))
    silent_replicas = {name: since for name, since in pods.out.items() if name not in pods.overdue}
    # Silence turns into loss by time alone, and no object changes at that moment.
    moments = [
        *(since + grace for since in silent_replicas.values()),
        *filter(None, (_unaccepted_since(pod) for _, pod in _own_pods(observed))),
    ]
    timers = Timers().add(contact_in_s, *((moment - now).total_seconds() for moment in moments))
    silent_at_edge = {name: since for name, since in silent_replicas.items() if name in at_edge}
    if silent_at_edge:
        message = _out_text(silent_at_edge, None if observed.spec.policy.suspend else grace)
        finding = Finding(EDGE_CONNECTED, Truth.FALSE, "ReplicasOutOfContact", message)
    warning = edge_placement.warning(observed)
    if finding is not None and warning:
        finding = msgspec.structs.replace(finding, message=f"{finding.message}; {warning}")
    return finding, timers


def _out_text(silent_replicas: Mapping[str, datetime], grace: timedelta | None) -> str:
    """Args: grace: None for a suspended job, which waits without a limit"""
    parts = [
        f"{name} since {rfc3339(since)}" + (f", lost at {rfc3339(since + grace)}" if grace else "")
        for name, since in sorted(silent_replicas.items())
    ]
    effect = "the job goes on" if grace else "may still run and counts as active"
    return f"out of contact, {effect}: {listing(parts, _MAX_NAMED, '; ')}"


def _with_contact_status(
    observed: Observed,
    pods: _Pods,
    job_plan: Plan,
    finding: Finding | None,
    waits: Timers,
    now: datetime,
) -> Plan:
    """The plan with what this module adds to the status."""
    recorded = status.status_of(observed)
    conditions = _states(
        (job_plan.status or recorded).get("conditions", recorded.get("conditions"))
    )
    is_over = any(one.get("type") in ENDS and one.get("status") == "True" for one in conditions)
    events = job_plan.events
    if finding is not None and not is_over:
        (condition,) = status.conditions(observed, [finding], now)
        # The conditions of the operator's API do not have this field.
        condition.pop("observedGeneration")
        conditions = [condition, *conditions]  # the last condition is the state of the job
        events = (*events, *status.events(observed, [finding]))
    # Nobody waits for the contact of a job that has ended.
    out = {} if is_over else {n: rfc3339(since) for n, since in sorted(pods.out.items())}
    names = {name for name, _, _ in replicas.names(observed.ref.name, observed.spec)}
    fields = {"conditions": conditions, **status.workers_left_out(observed, names)}
    if recorded.get("outOfContact") != (out or None):
        former = mapping(recorded.get("outOfContact"))
        fields["outOfContact"] = status.replacement_patch(former, out) if out else None
    if job_plan.status is not None:
        new_status: Mapping[str, Any] | None = {**job_plan.status, **fields}
    else:
        new_status = status.subtree(observed, fields)
    timers = waits.add(job_plan.requeue_after_s)
    return msgspec.structs.replace(
        job_plan, status=new_status, events=events, requeue_after_s=timers.next_s
    )


def _without_contact_condition(observed: Observed) -> Observed:
    """The job without the condition that this module writes."""
    recorded = status.status_of(observed)
    if not status.condition(observed, EDGE_CONNECTED):
        return observed
    stripped = {**recorded, "conditions": _states(recorded.get("conditions"))}
    return msgspec.structs.replace(observed, object={**observed.object, "status": stripped})


def _states(conditions: Any) -> list[Mapping[str, Any]]:
    """The conditions without EdgeConnected."""
    return [entry for entry in mappings(conditions) if entry.get("type") != EDGE_CONNECTED]
