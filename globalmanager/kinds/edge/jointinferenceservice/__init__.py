"""JointInferenceService: a small model on the edge sends hard samples to a big model in the
cloud.
"""

from edgeai.api.jointinferenceservice import DEFINITION
from edgeai.api.schemas import Column
from globalmanager.contract import Kind
from globalmanager.kinds.edge.jointinferenceservice import model_rollout, totals
from globalmanager.kinds.edge.jointinferenceservice.assignments import assignments
from globalmanager.kinds.edge.jointinferenceservice.fold import ServiceFold
from globalmanager.kinds.edge.jointinferenceservice.plan import plan
from globalmanager.kinds.edge.jointinferenceservice.spec import (
    VALIDATIONS,
    is_of_fleet,
    node_selector,
    read,
    references,
)
from globalmanager.kinds.edge.jointinferenceservice.workers import OWNS
from globalmanager.kinds.edge.references import secrets

KIND = Kind(
    definition=DEFINITION,
    columns=(
        Column("Phase", "string", ".status.phase"),
        Column("Node", "string", ".status.edgeNodes"),
        Column("Hard", "string", '.status.metrics[?(@.key=="hard")].value'),
        Column("Uploaded", "integer", ".status.uploadCount"),
        Column("Age", "date", ".metadata.creationTimestamp"),
        Column("Seen", "string", '.status.metrics[?(@.key=="seen")].value', priority=1),
        Column("Reason", "string", '.status.conditions[?(@.type=="Running")].reason', priority=1),
    ),
    validations=VALIDATIONS,
    read=read,
    node_selector=node_selector,
    owns=OWNS,
    references=references,
    indirect_references=secrets,
    plan=plan,
    assignments=assignments,
    fold=ServiceFold,
    is_sliced=is_of_fleet,
    sums=totals.FIELDS,
    decisions=frozenset({model_rollout.FIELD}),
)
