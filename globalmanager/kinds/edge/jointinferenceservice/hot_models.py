"""What keeps edge workers from the Model that they load hot, or from its new version."""

from collections.abc import Mapping

import msgspec

from edgeai.api.jointinferenceservice import JointInferenceServiceSpec, Phase
from edgeai.api.status import Finding, Truth, condition_of, mapping, worker_entries
from globalmanager.contract import Observed
from globalmanager.kinds.edge.jointinferenceservice.assignments import nodes
from globalmanager.kinds.edge.jointinferenceservice.spec import RUNNING
from globalmanager.kinds.edge.references import model_ref
from globalmanager.kinds.shared import status


def with_model(observed: Observed, running: Finding, phase: Phase) -> tuple[Finding, Phase]:
    """The condition Running, which is False while available workers have no model to answer
    with.
    """
    if running.truth is not Truth.TRUE:
        return running, phase
    details = _details(observed)
    faults = {worker: text for worker in details if (text := details[worker].get("modelFault"))}
    undelivered = _undelivered(observed)
    texts = [*(f"{worker}: {text}" for worker, text in faults.items()), *undelivered]
    loaded = {worker for worker in details if details[worker].get("modelVersion")}
    if faults.keys() - loaded or (undelivered and not loaded):
        message = "; ".join(texts)
        return Finding(RUNNING, Truth.FALSE, "ModelNotLoaded", message), Phase.PENDING
    # The workers serve with the version before.
    message = "; but ".join([running.message, *texts])
    return msgspec.structs.replace(running, message=message), phase


def _details(observed: Observed) -> dict[str, Mapping[str, str]]:
    """Worker -> the details of its report, for the workers that run now."""
    places = nodes(observed)
    return {
        worker: mapping(entry.get("details"))
        for worker, entry in sorted(worker_entries(status.status_of(observed)).items())
        if entry.get("node") in places and entry.get("status") == "running"
    }


def _undelivered(observed: Observed) -> list[str]:
    """What the Model says of nodes without its content; empty when there are none."""
    spec: JointInferenceServiceSpec | None = observed.spec
    if spec is None or not spec.edge_worker.model.is_hot:
        return []
    ref = model_ref(observed.type, observed.ref.namespace, spec.edge_worker.model.name)
    condition = condition_of(observed.references.get(ref, {}), "Delivered")
    is_delivered = condition.get("status") != Truth.FALSE
    return [] if is_delivered else [f"Model {ref.namespace}/{ref.name}: {condition.get('message')}"]
