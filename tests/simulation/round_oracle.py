"""What edgeai promises of rounds of incremental learning.

- a round begins with the next number when the trigger is met, with all samples that no round has
  learned from; one that has ended never runs again
- a stage ends by what a worker of this round and this attempt has told, and an attempt counts as
  failed only after its pod has failed, told nothing or not started in time
- a model is deployed if its evaluation meets the condition that the spec then has, a deployment
  succeeds with the worker that has this model, and the model before comes back after a failure
- while the job is suspended, nothing of this goes on, and no pod of a round runs
- an edit of the spec does not change what the present round works on
- when faults are over and the workers do their work, the job waits for samples, and says how its
  last round ended
"""

from collections import defaultdict
from typing import Any, Final, NamedTuple

from tests.simulation.api import Key, Object

ROUNDS: Final = "incrementallearningjobs.edgeai.io"
NAME: Final = "rounds"
"""Of the job and its Dataset."""
MODEL_FILE: Final = Key("configmaps", "default", f"{NAME}-model")
"""Names the model of a worker that loads it hot."""
_ENDS: Final = ("Deployed", "NotDeployed", "TrainFailed", "EvalFailed", "DeployFailed")
_MAX_ATTEMPTS: Final = 3
_STARTED_WITHIN_S: Final = 1800.0
_FIXED: Final = ("url", "node", "format", "train", "valid", "end", "base")
"""Fields of a round that stay as they are from its beginning to its end."""


class _Step(NamedTuple):
    """A write of .status."""

    uid: str
    spec: Object
    old: Object
    new: Object

    @property
    def before(self) -> Object:
        """The round in progress before the write; empty: none."""
        return self.old.get("current") or {}

    @property
    def after(self) -> Object:
        return self.new.get("current") or {}

    def condition(self, worker: str) -> Object | None:
        return (self.spec[worker].get("trigger") or {}).get("condition")


class _Pod(NamedTuple):
    """A pod of a round, for all attempts to make it."""

    made_s: float
    has_failed: bool = False


class _Samples(NamedTuple):
    """The number of samples that rounds have learned from. It falls with that of the Dataset; the
    GlobalManager may not see each fall.
    """

    least: int = 0
    most: int = 0

    def at_most(self, count: int) -> "_Samples":
        return self._replace(least=min(self.least, count))


class RoundOracle:
    """Each method `problem_…` returns the promise that is broken; "": none is."""

    def __init__(self) -> None:
        self._pods: dict[tuple[str, str], _Pod] = {}  # (uid, name) -> pod
        self._told: dict[str, set[str]] = defaultdict(set)  # uid -> pods whose result was told
        self._deltas: dict[tuple[str, int], float] = {}  # (uid, round) -> by so much it is better
        self._better: dict[str, set[int]] = defaultdict(set)  # uid -> rounds to be deployed
        self._ended: dict[str, int] = {}  # uid -> number of the last round that ended
        self._learned: dict[str, _Samples] = defaultdict(_Samples)
        self._samples = 0

    def note_pod(self, pod: str, uid: str, object_: Object, now: float) -> None:
        """A pod of the job has begun, or its phase may have changed."""
        known = self._pods.setdefault((uid, pod), _Pod(now))
        is_going = "deletionTimestamp" in object_["metadata"]
        if (object_.get("status") or {}).get("phase") == "Failed" and not is_going:
            self._pods[uid, pod] = known._replace(has_failed=True)

    def note_samples(self, count: int) -> None:
        """The API has this number of samples in the Dataset."""
        self._samples = count
        for uid, learned in self._learned.items():
            self._learned[uid] = learned.at_most(count)

    def told(self, uid: str, pod: str) -> None:
        """The worker begins to tell its result."""
        self._told[uid].add(pod)

    def evaluated(self, uid: str, number: int, delta: float) -> None:
        """Args: delta: by so much the new model is better"""
        self._deltas[uid, number] = delta

    # ---- writes of .status ----------------------------------------------------------------------

    def problem_of_status(
        self, uid: str, spec: Object, old: Object, new: Object, now: float
    ) -> str:
        """Args: spec: from which the write was planned"""
        step = _Step(uid, spec, old, new)
        problem = self._problem_of_number(step) or self._problem_of_suspension(step)
        problem = problem or self._problem_of_begin(step) or self._problem_of_stage(step)
        problem = problem or self._problem_of_attempt(step, now) or self._problem_of_model(step)
        self._ended[uid] = max(self._ended.get(uid, 0), (new.get("last") or {}).get("round", 0))
        return problem

    def _problem_of_number(self, step: _Step) -> str:
        number, before = step.new.get("round") or 0, step.old.get("round") or 0
        if number not in (before, before + 1):
            return f"round {number} follows {before}"
        if number != before and step.before:
            return f"round {number} begins in round {before}"
        if step.after and step.after["number"] != number:
            return f"round {step.after['number']} runs, and the last one is {number}"
        if step.after and step.after["number"] <= self._ended.get(step.uid, 0):
            return f"round {step.after['number']} runs again"
        return ""

    def _problem_of_suspension(self, step: _Step) -> str:
        if not step.spec.get("suspend"):
            return ""
        before, after = _decisions(step.old), _decisions(step.new)
        return "" if before == after else f"suspended, it goes on from {before} to {after}"

    def _problem_of_begin(self, step: _Step) -> str:
        if not step.after or step.before:
            changed = [
                field
                for field in (_FIXED if step.after else ())
                if step.before.get(field) != step.after.get(field)
            ]
            return f"{changed} of round {step.after['number']} change" if changed else ""
        number, end = step.after["number"], step.after["end"]
        start, learned = step.after["train"][0]["start"], self._learned[step.uid]
        if not learned.least <= start <= learned.most:
            return f"round {number} begins with sample {start}, and the rounds before had {learned}"
        condition = step.condition("trainSpec")
        triggered = (step.old.get("progress") or {}).get("triggered", 0)
        value = _value(condition, step, triggered, end)
        if end <= triggered or not _is_met(condition, value):
            return f"round {number} begins with {value} from {triggered} to {end}: {condition}"
        return ""

    def _problem_of_stage(self, step: _Step) -> str:
        before, stage = step.before, step.after.get("stage")
        if not before or before["stage"] in ("Deploy", stage):
            return ""
        last, number = step.new.get("last") or {}, before["number"]
        if not stage and last["reason"] == f"{before['stage']}Failed":
            return ""
        names = [_pod_of(before, attempt) for attempt in range(before["attempt"] + 1)]
        # Each attempt of a training has a directory of its own, and no evaluation has.
        names = names[-1:] if before["stage"] == "Train" else names
        if self._told[step.uid].isdisjoint(names):
            return f"{before['stage']} of round {number} ends, and none of {names} has told of it"
        if before["stage"] == "Train":
            return "" if stage == "Eval" else f"round {number} ends after its training: {last}"
        self._learned[step.uid] = _Samples(before["end"], before["end"]).at_most(self._samples)
        condition, delta = step.condition("deploySpec"), self._deltas[step.uid, number]
        if _is_met(condition, delta) != (stage == "Deploy"):
            return f"round {number} with {delta} goes to {stage or last}, and {condition=}"
        self._better[step.uid] |= {number} if stage else set()
        return ""

    def _problem_of_attempt(self, step: _Step, now: float) -> str:
        before, after, last = step.before, step.after, step.new.get("last") or {}
        if not before or before["stage"] == "Deploy":
            return ""
        attempt = before["attempt"]
        is_over = not after and last["reason"] == f"{before['stage']}Failed"
        is_next = before["stage"] == after.get("stage") and after["attempt"] != attempt
        if not is_over and not is_next:
            return ""
        if attempt + 1 != (_MAX_ATTEMPTS if is_over else after["attempt"]):
            return f"attempt {after.get('attempt')} follows {attempt}: {last}"
        name = _pod_of(before, attempt)
        pod = self._pods.get((step.uid, name))
        is_late = pod is not None and now >= pod.made_s + _STARTED_WITHIN_S
        if before.get("succeeded") or (pod is not None and pod.has_failed) or is_late:
            return ""
        return f"attempt {attempt} counts as failed, and {name} has not: {pod}"

    def _problem_of_model(self, step: _Step) -> str:
        before, former = step.old.get("deployed"), step.old.get("former")
        deployed, last = step.new.get("deployed"), step.new.get("last") or {}
        number = (deployed or {}).get("round", 0)
        if number and number not in self._better[step.uid]:
            return f"round {number} is deployed, and only {self._better[step.uid]} are better"
        if deployed != before and deployed != former and number != step.before.get("number"):
            return f"{deployed} takes the place of {before}, and {former} was before"
        if not step.before or step.after:
            return ""
        ended = step.before["number"]
        if (last["reason"] == "Deployed") != (number == ended):
            return f"round {ended} ends with {last}, and {deployed} is deployed"
        version = _worker_version(step.new)
        is_hot = step.spec["deploySpec"]["model"].get("hotUpdate")
        if last["reason"] == "Deployed" and is_hot and version not in ("", str(ended)):
            return f"round {ended} is deployed, and the worker has version {version}"
        return "" if last["reason"] in _ENDS else f"round {ended} ends with {last}"

    # ---- pods, and the end ----------------------------------------------------------------------

    def problem_of_pod(self, pod: str, uid: str, status: Object) -> str:
        if not pod.startswith(f"{NAME}-"):
            return ""
        number, current = int(pod.split("-")[-2]), status.get("current") or {}
        if number <= self._ended.get(uid, 0):
            return f"{pod} begins after the end of round {number}"
        if current.get("succeeded") and pod.endswith(f"-{number}-{current['attempt']}"):
            return f"{pod} runs again after its success"
        return ""

    def problem_at_end(self, job: Object, alive: set[str], samples: int) -> str:
        """Args:
        alive: pods that have not ended
        samples: number of samples in the Dataset
        """
        spec, status = job["spec"], job.get("status") or {}
        is_suspended = bool(spec.get("suspend"))
        conditions = {each["type"]: each["status"] for each in status.get("conditions") or ()}
        if conditions.get("Suspended", "False") != str(is_suspended):
            return f"the job is {is_suspended=}, and says {conditions}"
        if is_suspended:
            return f"the job is suspended, and {sorted(alive)} run" if alive else ""
        if status.get("current") or alive:
            return f"the round does not end: {status}, {sorted(alive)}"
        step = _Step(job["metadata"]["uid"], spec, status, status)
        condition, triggered = step.condition("trainSpec"), status["progress"]["triggered"]
        is_met = _is_met(condition, _value(condition, step, triggered, samples))
        if samples > triggered and is_met:
            return f"no round begins with {samples} samples, and {condition=}: {status}"
        return ""


def is_of_round(key: Key) -> bool:
    return key.resource == "pods" and key.name.startswith(f"{NAME}-")


def _decisions(status: Object) -> dict[str, Any]:
    """What no plan changes while the job is suspended. The success of a pod is noted."""
    current = {k: v for k, v in (status.get("current") or {}).items() if k != "succeeded"}
    return {"current": current, **{name: status.get(name) for name in ("deployed", "last")}}


def _pod_of(current: Object, attempt: int) -> str:
    return f"{NAME}-{current['stage'].lower()}-{current['number']}-{attempt}"


def _value(condition: Object | None, step: _Step, triggered: int, end: int) -> float:
    """What a trigger of the training compares."""
    if condition and condition["metric"] == "num_of_hard_examples":
        entries = (step.old.get("workers") or {}).values()
        hard = sum((entry.get("taskInfo") or {}).get("hard", 0) for entry in entries)
        return float(hard - (step.old.get("progress") or {}).get("hard", 0))
    new = end - triggered
    share = int(step.spec["dataset"].get("trainProb", 0.8) * new)
    return float(new if new < 2 else min(max(share, 1), new - 1))


def _is_met(condition: Object | None, value: float) -> bool:
    if condition is None:
        return True
    threshold = condition["threshold"]
    return bool(value > threshold if condition["operator"] == ">" else value >= threshold)


def _worker_version(status: Object) -> str:
    """The version of the model that the inference worker says it has; "": it says none."""
    entry = (status.get("workers") or {}).get(f"{NAME}-inference") or {}
    return str((entry.get("details") or {}).get("modelVersion", ""))
