"""Any edits of an elastic PyTorchJob whose workers come and go: it never fails, and rests."""

import random
from collections import Counter
from typing import Any, Final

from hypothesis import example, given, settings
from hypothesis import strategies as st

from globalmanager.contract import Severity
from tests.globalmanager.kinds.training.pytorchjob.test_elastic import (
    EVICTED,
    NO_ROOM,
    annotate,
    bind,
    half_full,
)
from tests.globalmanager.kinds.training.samples import conditions, pods
from tests.support.world import World, at, copied

POLICY: Final = {"minReplicas": 2, "maxReplicas": 4}


def happen(made: World, random_: random.Random) -> None:
    """One edit by the user, or one event of the cluster."""
    spec, pick, number = copied(made.object["spec"]), random_.choice, random_.randint(1, 6)
    match pick(["annotation", "scale", "policy", "limits", "suspend", "evict", "room", "room"]):
        case "annotation":
            annotate(made, pick(["true", None, "false"]))
        case "scale":
            spec["pytorchReplicaSpecs"]["Worker"]["replicas"] = number
            made.change(spec)
        case "policy":
            kept = {key: value for key, value in spec.items() if key != "elasticPolicy"}
            made.change(kept if "elasticPolicy" in spec else {**spec, "elasticPolicy": POLICY})
        case "limits":
            made.change({**spec, "elasticPolicy": {**POLICY, "minReplicas": number}})
        case "suspend":
            made.change({**spec, "runPolicy": {"suspend": pick([True, False, False])}})
        case "evict" if pods(made):
            made.pods_become("Failed", pick(pods(made)), **EVICTED)
        case _:
            for name in pods(made):
                phase = (made.child("Pod", name).get("status") or {}).get("phase")
                if phase in (None, "Pending") and random_.random() < 0.5:
                    bind(made, name).pods_become("Running", name)
                elif phase is None:
                    made.pods_become("Pending", name, **NO_ROOM)


@settings(max_examples=6)
@given(seed=st.integers(0, 2**32))
@example(seed=19)
def test_a_job_follows_any_edits_and_tells_each_refusal_once(seed: int) -> None:
    random_ = random.Random(seed)
    made, now = half_full(random_.randint(2, 4)), 1.0
    for _ in range(15):
        happen(made, random_)
        told: Counter[Any] = Counter()
        for _ in range(10):
            now += 10
            plan = made.plan(at(now))
            warnings = (event for event in plan.events if event.severity is Severity.WARNING)
            told.update((event.reason, event.message) for event in warnings)
            made.apply(plan)
        assert (plan.actions, plan.status, plan.events) == ((), None, ())
        assert all(number == 1 for number in told.values()), told
        assert conditions(made)[-1] not in ("Failed", "Succeeded")
