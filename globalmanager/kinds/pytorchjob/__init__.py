"""PyTorchJob: processes of one PyTorch training, led by a master or by a rendezvous of workers."""

from edgeai.api.resources import AUTOSCALERS, ResourceType
from globalmanager.contract import Column, Kind, Scale, Schema, UpdateRule
from globalmanager.kinds.pytorchjob.types import CONSTRAINTS, PyTorchJobSpec, PyTorchJobStatus, read
from globalmanager.rules.training import gangs
from globalmanager.rules.training.changes import FOLLOWS, OWNS
from globalmanager.rules.training.constraints import keywords, validations
from globalmanager.rules.training.edge_plan import plan_across_edge
from globalmanager.rules.training.edge_reports import assignments, fold
from globalmanager.rules.training.forms import SUSPENSION
from globalmanager.rules.training.outcomes import outcomes
from globalmanager.rules.training.plan import event_reason

KIND = Kind(
    types={
        ResourceType("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob"): Schema(
            spec=PyTorchJobSpec,
            status=PyTorchJobStatus,
            columns=(
                Column("State", "string", ".status.conditions[-1:].type"),
                Column("Age", "date", ".metadata.creationTimestamp"),
            ),
            scale=Scale(
                ".spec.pytorchReplicaSpecs.Worker.replicas",
                ".status.replicaStatuses.Worker.active",
                ".status.replicaStatuses.Worker.selector",
            ),
            keywords=keywords(CONSTRAINTS),
            validations=validations(CONSTRAINTS),
        )
    },
    singular="pytorchjob",
    short_names={},
    read=read,
    owns={**OWNS, AUTOSCALERS: UpdateRule.REPLACE},
    follows=FOLLOWS,
    needed=gangs.NEEDED,
    framework="pytorch",
    outcomes=outcomes,
    suspension=SUSPENSION,
    event_reason=event_reason,
    deletes_itself=True,
    plan=plan_across_edge,
    assignments=assignments,
    fold=fold,
)
