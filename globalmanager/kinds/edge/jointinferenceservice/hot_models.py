"""What keeps edge workers from the Model that they load hot, or from its new version."""

from collections.abc import Mapping

import msgspec

from edgeai.api.jointinferenceservice import JointInferenceServiceSpec, Phase
from edgeai.api.status import Finding, Truth, condition_of, worker_entries
from globalmanager.contract import Observed
from globalmanager.kinds.edge.jointinferenceservice.assignments import nodes
from globalmanager.kinds.edge.jointinferenceservice.fleet import READY, Fleet
from globalmanager.kinds.edge.jointinferenceservice.fleet_models import ModelReport, Reports
from globalmanager.kinds.edge.jointinferenceservice.spec import RUNNING
from globalmanager.kinds.edge.references import model_ref
from globalmanager.kinds.shared import status


def with_models(
    observed: Observed, fleet: Fleet | None, reports: Reports, running: Finding, phase: Phase
) -> tuple[Finding, Phase]:
    """The condition Running, which is False while no available worker has a model to answer with.

    Args: reports: of the workers of a fleet, whose status does not have them
    """
    if running.truth is not Truth.TRUE:
        return running, phase
    if fleet is None:
        reports = _reports(observed)
        workers, undelivered = list(reports), _undelivered(observed)
    else:
        # Who has content is a matter of thousands of nodes, and of the Model.
        workers, undelivered = list(fleet.by_state[READY]), []
    waiting, faults = 0, []
    for worker in workers:
        # A worker that has just started has not reported yet.
        if (report := reports.get(worker)) is not None:
            waiting += not report.details.model_version
            if report.details.model_fault:
                faults.append((worker, report.details.model_fault))
    texts = [f"{waiting} of {len(workers)} workers have no model"] if waiting else []
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    texts += [*(f"{worker}{more}: {fault}" for worker, fault in faults[:1]), *undelivered]
    if (faults or undelivered) and waiting == len(workers):
        return Finding(RUNNING, Truth.FALSE, "ModelNotLoaded", "; ".join(texts)), Phase.PENDING
    # The workers serve with the version before.
    message = "; but ".join([running.message, *texts])
    return msgspec.structs.replace(running, message=message), phase


def _reports(observed: Observed) -> Mapping[str, ModelReport]:
    """Worker -> its report, for the workers that run now and load a model hot."""
    places, reports = nodes(observed), {}
    for worker, entry in sorted(worker_entries(status.status_of(observed)).items()):
        try:
            report = msgspec.convert(entry, ModelReport, strict=False)
        except msgspec.ValidationError:  # somebody else wrote it
            continue
        is_hot = report.details.model_version or report.details.model_fault
        if is_hot and report.status == "running" and report.node in places:
            reports[worker] = report
    return reports


def _undelivered(observed: Observed) -> list[str]:
    """What the Model says of nodes without its content; empty when there are none."""
    spec: JointInferenceServiceSpec | None = observed.spec
    if spec is None or not spec.edge_worker.model.is_hot:
        return []
    ref = model_ref(observed, spec.edge_worker.model.name)
    condition = condition_of(observed.references.get(ref, {}), "Delivered")
    is_delivered = condition.get("status") != Truth.FALSE
    return [] if is_delivered else [f"Model {ref.namespace}/{ref.name}: {condition.get('message')}"]
