"""TFJob: the tasks of one TensorFlow training, which find each other by TF_CONFIG.

The plan is `rules.training.edge_plan`, which corrects the pods, around `rules.training.plan`.
"""

from typing import Final

from edgeai.api.resources import ResourceType
from globalmanager.contract import Column, Kind, Schema
from globalmanager.kinds.tfjob.types import CONSTRAINTS, TFJobSpec, TFJobStatus, read
from globalmanager.rules.training import gangs
from globalmanager.rules.training.changes import FOLLOWS, OWNS
from globalmanager.rules.training.constraints import keywords, validations
from globalmanager.rules.training.edge_plan import plan_across_edge
from globalmanager.rules.training.edge_reports import assignments, fold
from globalmanager.rules.training.forms import SUSPENSION
from globalmanager.rules.training.outcomes import outcomes
from globalmanager.rules.training.plan import event_reason

_SCHEMA: Final = Schema(
    spec=TFJobSpec,
    status=TFJobStatus,
    columns=(
        Column("State", "string", ".status.conditions[-1:].type"),
        Column("Age", "date", ".metadata.creationTimestamp"),
    ),
    keywords=keywords(CONSTRAINTS),
    validations=validations(CONSTRAINTS),
)

KIND = Kind(
    types={
        ResourceType("kubeflow.org", "v1", "tfjobs", "TFJob"): _SCHEMA,
        ResourceType("kubeflow.org", "v1alpha2", "tfjobs", "TFJob"): _SCHEMA,
    },
    singular="tfjob",
    short_names={},
    read=read,
    owns=OWNS,
    follows=FOLLOWS,
    needed=gangs.NEEDED,
    framework="tensorflow",
    outcomes=outcomes,
    suspension=SUSPENSION,
    event_reason=event_reason,
    deletes_itself=True,
    plan=plan_across_edge,
    assignments=assignments,
    fold=fold,
)
