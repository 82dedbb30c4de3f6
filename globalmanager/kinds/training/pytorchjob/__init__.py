"""PyTorchJob: processes of one PyTorch training, led by a master or by a rendezvous of workers."""

from edgeai.api.pytorchjob import DEFINITION
from edgeai.api.resources import AUTOSCALERS
from edgeai.api.schemas import Column, Scale
from globalmanager.contract import Kind, UpdateRule
from globalmanager.kinds.shared.constraints import keywords, validations
from globalmanager.kinds.shared.job_plan import event_reason
from globalmanager.kinds.shared.outcomes import outcomes
from globalmanager.kinds.training import gangs
from globalmanager.kinds.training.changes import FOLLOWS, OWNS
from globalmanager.kinds.training.edge_plan import plan_across_edge
from globalmanager.kinds.training.edge_reports import assignments, fold
from globalmanager.kinds.training.framework import SUSPENSION
from globalmanager.kinds.training.pytorchjob.spec import CONSTRAINTS, read

KIND = Kind(
    definition=DEFINITION,
    columns=(
        # As the operator's column. So the last condition must stay the state of the job.
        Column("State", "string", ".status.conditions[-1:].type"),
        Column("Age", "date", ".metadata.creationTimestamp"),
    ),
    # As upstream, kubectl and autoscalers scale the workers alone, because a job has one master.
    scale=Scale(
        ".spec.pytorchReplicaSpecs.Worker.replicas",
        ".status.replicaStatuses.Worker.active",
        ".status.replicaStatuses.Worker.selector",
    ),
    keywords=keywords(CONSTRAINTS),
    validations=validations(CONSTRAINTS),
    read=read,
    owns={**OWNS, AUTOSCALERS: UpdateRule.REPLACE},
    follows=FOLLOWS,
    needed=gangs.NEEDED,
    framework="pytorch",
    outcomes=outcomes,
    suspension=SUSPENSION,
    event_reason=event_reason,
    # For ttlSecondsAfterFinished.
    deletes_itself=True,
    plan=plan_across_edge,
    assignments=assignments,
    fold=fold,
)
