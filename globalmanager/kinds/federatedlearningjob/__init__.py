"""FederatedLearningJob: trainers keep their data, and an aggregator joins the trained weights."""

from edgeai.api.resources import ResourceType
from globalmanager.contract import Column, Kind, Schema
from globalmanager.kinds.federatedlearningjob.downstream import assignments
from globalmanager.kinds.federatedlearningjob.main import plan
from globalmanager.kinds.federatedlearningjob.types import (
    FederatedLearningJobSpec,
    FederatedLearningJobStatus,
    read,
    references,
)
from globalmanager.kinds.federatedlearningjob.upstream import fold
from globalmanager.kinds.federatedlearningjob.workers import OWNS
from globalmanager.rules.references import secrets

_PLURAL = "federatedlearningjobs"
_KIND = "FederatedLearningJob"

_SCHEMA = Schema(
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
)

KIND = Kind(
    types={
        ResourceType("edgeai.io", "v1alpha1", _PLURAL, _KIND): _SCHEMA,
        ResourceType("sedna.io", "v1alpha1", _PLURAL, _KIND): _SCHEMA,
    },
    singular="federatedlearningjob",
    short_names={"edgeai.io": ("flj",), "sedna.io": ("fl",)},  # Sedna has the short name `fl`
    read=read,
    owns=OWNS,
    references=references,
    indirect_references=secrets,
    plan=plan,
    assignments=assignments,
    fold=fold,
)
