"""The Kind of a job of the Kubeflow operators.

The plan is `edge_plan`, which corrects the pods, around `plan`.
"""

from collections.abc import Callable, Mapping, Sequence

from edgeai.api.definitions import Definition
from edgeai.api.resources import Object, ResourceType
from edgeai.api.schemas import Column
from globalmanager.contract import Kind, UpdateRule
from globalmanager.kinds.shared.constraints import Constraint, keywords, validations
from globalmanager.kinds.shared.job_conditions import outcomes
from globalmanager.kinds.shared.job_plan import event_reason
from globalmanager.kinds.training import gangs
from globalmanager.kinds.training.changes import FOLLOWS, OWNS
from globalmanager.kinds.training.edge_plan import plan_across_edge
from globalmanager.kinds.training.edge_reports import ReplicaFold, assignments
from globalmanager.kinds.training.framework import KubeflowJob


def training_kind(
    definition: Definition,
    read: Callable[[Object], KubeflowJob],
    constraints: Sequence[Constraint],
    *,
    framework: str,
    owns: Mapping[ResourceType, UpdateRule] = OWNS,
) -> Kind:
    return Kind(
        definition=definition,
        columns=(
            # As the operator's column. So the last condition must stay the state of the job.
            Column("State", "string", ".status.conditions[-1:].type"),
            Column("Age", "date", ".metadata.creationTimestamp"),
        ),
        keywords=keywords(constraints),
        validations=validations(constraints),
        read=read,
        owns=owns,
        follows=FOLLOWS,
        needed=gangs.NEED,
        framework=framework,
        outcomes=outcomes,
        event_reason=event_reason,
        # For ttlSecondsAfterFinished.
        deletes_itself=True,
        plan=plan_across_edge,
        assignments=assignments,
        fold=ReplicaFold,
    )
