"""TrainingJob: a launcher that trains on workers, whose number may change while it trains."""

from edgeai.api.resources import PODS
from edgeai.api.schemas import Column
from edgeai.api.trainingjob import DEFINITION
from globalmanager.contract import Kind
from globalmanager.kinds.elastic.trainingjob import launcher, scalers, snapshot, workers
from globalmanager.kinds.elastic.trainingjob.plan import plan
from globalmanager.kinds.elastic.trainingjob.spec import CONSTRAINTS, read
from globalmanager.kinds.shared import workloads
from globalmanager.kinds.shared.constraints import keywords, validations
from globalmanager.kinds.shared.job_plan import event_reason

KIND = Kind(
    definition=DEFINITION,
    columns=(
        # As the column of the et-operator.
        Column("Phase", "string", ".status.phase"),
        Column("Age", "date", ".metadata.creationTimestamp"),
    ),
    keywords=keywords(CONSTRAINTS),
    validations=validations(CONSTRAINTS),
    read=read,
    owns=launcher.OWNS,
    follows=workers.FOLLOWS,
    # Only for the annotation that makes the kubelet read the list of hosts again.
    patches=frozenset({PODS}),
    scalers=scalers.SCALERS,
    makes_scalers=True,
    executes=True,
    role_rules=launcher.ROLE_RULES,
    outcomes=snapshot.outcomes,
    event_reason=event_reason,
    references=workloads.references,
    foreign=frozenset({workloads.WORKLOADS}),
    plan=workloads.queued(plan),
)
