"""TFJob: the tasks of one TensorFlow training, which find each other by TF_CONFIG.

The plan is `training.edge_plan`, which corrects the pods, around `training.plan`.
"""

from edgeai.api.schemas import Column
from edgeai.api.tfjob import DEFINITION
from globalmanager.contract import Kind
from globalmanager.kinds.shared.constraints import keywords, validations
from globalmanager.kinds.shared.job_plan import event_reason
from globalmanager.kinds.shared.outcomes import outcomes
from globalmanager.kinds.training import gangs
from globalmanager.kinds.training.changes import FOLLOWS, OWNS
from globalmanager.kinds.training.edge_plan import plan_across_edge
from globalmanager.kinds.training.edge_reports import assignments, fold
from globalmanager.kinds.training.framework import SUSPENSION
from globalmanager.kinds.training.tfjob.spec import CONSTRAINTS, read

KIND = Kind(
    definition=DEFINITION,
    columns=(
        # As the operator's column. So the last condition must stay the state of the job.
        Column("State", "string", ".status.conditions[-1:].type"),
        Column("Age", "date", ".metadata.creationTimestamp"),
    ),
    keywords=keywords(CONSTRAINTS),
    validations=validations(CONSTRAINTS),
    read=read,
    owns=OWNS,
    follows=FOLLOWS,
    needed=gangs.NEEDED,
    framework="tensorflow",
    outcomes=outcomes,
    suspension=SUSPENSION,
    event_reason=event_reason,
    # For ttlSecondsAfterFinished.
    deletes_itself=True,
    plan=plan_across_edge,
    assignments=assignments,
    fold=fold,
)
