"""IncrementalLearningJob: a model at the edge is trained again and again with new samples."""

from edgeai.api.incrementallearningjob import DEFINITION
from edgeai.api.model import DEFINITION as MODEL
from edgeai.api.schemas import Column
from globalmanager.contract import Kind
from globalmanager.kinds.edge.incrementallearningjob.assignments import assignments
from globalmanager.kinds.edge.incrementallearningjob.plan import plan
from globalmanager.kinds.edge.incrementallearningjob.spec import read, references
from globalmanager.kinds.edge.incrementallearningjob.workers import OWNS
from globalmanager.kinds.edge.references import secrets
from globalmanager.kinds.shared.worker_status import LatestFold

KIND = Kind(
    definition=DEFINITION,
    columns=(
        Column("Phase", "string", ".status.phase"),
        Column("Round", "integer", ".status.round"),
        Column("Last", "string", ".status.last.reason"),
        Column("Deployed", "integer", ".status.deployed.round"),
        Column("Age", "date", ".metadata.creationTimestamp"),
        Column("Reason", "string", '.status.conditions[?(@.type=="Learning")].reason', priority=1),
    ),
    read=read,
    owns=OWNS,
    patches=frozenset(MODEL.resources),
    references=references,
    indirect_references=secrets,
    plan=plan,
    assignments=assignments,
    fold=LatestFold,
    sums=frozenset({"workers"}),  # the plan adds up the hard examples, and it may do so later
)
