"""JointInferenceService: a small model on the edge sends hard samples to a big model in the
cloud.
"""

from edgeai.api.resources import ResourceType
from globalmanager.contract import Column, Kind, Schema
from globalmanager.kinds.jointinferenceservice import totals
from globalmanager.kinds.jointinferenceservice.downstream import assignments
from globalmanager.kinds.jointinferenceservice.main import plan
from globalmanager.kinds.jointinferenceservice.types import (
    JointInferenceServiceSpec,
    JointInferenceServiceStatus,
    read,
    references,
)
from globalmanager.kinds.jointinferenceservice.upstream import fold
from globalmanager.kinds.jointinferenceservice.workers import OWNS
from globalmanager.rules.references import secrets

_PLURAL = "jointinferenceservices"
_KIND = "JointInferenceService"

_SCHEMA = Schema(
    spec=JointInferenceServiceSpec,
    status=JointInferenceServiceStatus,
    columns=(
        Column("Phase", "string", ".status.phase"),
        Column("Node", "string", ".status.edgeNodes"),
        Column("Hard", "string", '.status.metrics[?(@.key=="hard")].value'),
        Column("Uploaded", "integer", ".status.uploadCount"),
        Column("Age", "date", ".metadata.creationTimestamp"),
        Column("Seen", "string", '.status.metrics[?(@.key=="seen")].value', priority=1),
        Column("Reason", "string", '.status.conditions[?(@.type=="Running")].reason', priority=1),
    ),
)

KIND = Kind(
    types={
        ResourceType("edgeai.io", "v1alpha1", _PLURAL, _KIND): _SCHEMA,
        ResourceType("sedna.io", "v1alpha1", _PLURAL, _KIND): _SCHEMA,
    },
    singular="jointinferenceservice",
    # `jis` is in the proposal, `ji` in Sedna
    short_names={"edgeai.io": ("jis",), "sedna.io": ("ji",)},
    read=read,
    owns=OWNS,
    references=references,
    indirect_references=secrets,
    plan=plan,
    assignments=assignments,
    fold=fold,
    sums=totals.FIELDS,
)
