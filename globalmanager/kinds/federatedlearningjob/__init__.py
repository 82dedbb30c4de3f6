"""FederatedLearningJob: trainers keep their data, an aggregator joins what they learn."""

from globalmanager.contract import PODS, SERVICES, Column, Kind, ResourceType
from globalmanager.kinds.federatedlearningjob.downstream import assignments
from globalmanager.kinds.federatedlearningjob.main import plan
from globalmanager.kinds.federatedlearningjob.types import (
    FederatedLearningJobSpec,
    FederatedLearningJobStatus,
    references,
)
from globalmanager.kinds.federatedlearningjob.upstream import fold

_PLURAL = "federatedlearningjobs"
_KIND = "FederatedLearningJob"

KIND = Kind(
    types=(
        ResourceType("edgeai.io", "v1alpha1", _PLURAL, _KIND),
        ResourceType("sedna.io", "v1alpha1", _PLURAL, _KIND),
    ),
    singular="federatedlearningjob",
    short_names={"edgeai.io": ("flj",), "sedna.io": ("fl",)},  # the second as in Sedna
    spec=FederatedLearningJobSpec,
    status=FederatedLearningJobStatus,
    columns=(
        Column("Phase", "string", ".status.phase"),
        Column("Round", "integer", ".status.round"),
        Column("Rounds", "integer", ".status.rounds"),
        Column("Active", "integer", ".status.active"),
        Column("Succeeded", "integer", ".status.succeeded"),
        Column("Age", "date", ".metadata.creationTimestamp"),
        Column("Reason", "string", '.status.conditions[?(@.type=="Training")].reason', priority=1),
    ),
    owns=(SERVICES, PODS),
    references=references,
    plan=plan,
    assignments=assignments,
    fold=fold,
)
