"""Model: where a trained model is. Jobs refer to a Model. A Model itself runs nothing."""

from edgeai.api.model import DEFINITION
from edgeai.api.schemas import Column
from globalmanager.contract import Kind
from globalmanager.kinds.edge.model.assignments import assignments
from globalmanager.kinds.edge.model.fold import ModelFold
from globalmanager.kinds.edge.model.plan import plan, read
from globalmanager.kinds.edge.model.server import references, services

KIND = Kind(
    definition=DEFINITION,
    columns=(
        Column("URL", "string", ".spec.url"),
        Column("Format", "string", ".spec.format"),
        Column("Accepted", "string", '.status.conditions[?(@.type=="Accepted")].status'),
        Column("Ready", "integer", ".status.readyNodes", priority=1),
        Column("Age", "date", ".metadata.creationTimestamp"),
    ),
    read=read,
    plan=plan,
    assignments=assignments,
    references=references,
    indirect_references=services,
    fold=ModelFold,
    decisions=frozenset({"returns"}),
    has_readers=True,
)
