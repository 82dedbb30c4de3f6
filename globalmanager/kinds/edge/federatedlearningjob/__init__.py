"""FederatedLearningJob: trainers keep their data, and an aggregator joins the trained weights."""

from edgeai.api.federatedlearningjob import DEFINITION
from edgeai.api.schemas import Column
from globalmanager.contract import Kind
from globalmanager.kinds.edge.federatedlearningjob.assignments import assignments
from globalmanager.kinds.edge.federatedlearningjob.plan import plan
from globalmanager.kinds.edge.federatedlearningjob.spec import read, references
from globalmanager.kinds.edge.federatedlearningjob.workers import OWNS
from globalmanager.kinds.edge.references import secrets
from globalmanager.kinds.shared import workloads
from globalmanager.kinds.shared.worker_status import LatestFold

KIND = Kind(
    definition=DEFINITION,
    columns=(
        Column("Phase", "string", ".status.phase"),
        Column("Round", "integer", ".status.round"),
        Column("Rounds", "integer", ".status.rounds"),
        Column("Active", "integer", ".status.active"),
        Column("Succeeded", "integer", ".status.succeeded"),
        Column("Age", "date", ".metadata.creationTimestamp"),
        Column("Reason", "string", '.status.conditions[?(@.type=="Training")].reason', priority=1),
    ),
    read=read,
    owns=OWNS,
    references=references,
    indirect_references=secrets,
    foreign=frozenset({workloads.WORKLOADS}),
    plan=workloads.queued(plan),
    assignments=assignments,
    fold=LatestFold,
)
