"""TrainingJob: a launcher that trains on workers, whose number may change while it trains."""

from edgeai.api.resources import PODS
from globalmanager.contract import Column, Kind, Scale, Schema, Suspension
from globalmanager.kinds.trainingjob import launcher, main, present, scalers, workers
from globalmanager.kinds.trainingjob.types import (
    CONSTRAINTS,
    SUSPENDED,
    TrainingJobSpec,
    TrainingJobStatus,
    read,
)
from globalmanager.rules.elastic.words import TRAINING_JOBS
from globalmanager.rules.training.constraints import keywords, validations
from globalmanager.rules.training.plan import event_reason

KIND = Kind(
    types={
        TRAINING_JOBS: Schema(
            spec=TrainingJobSpec,
            status=TrainingJobStatus,
            columns=(
                Column("Phase", "string", ".status.phase"),
                Column("Age", "date", ".metadata.creationTimestamp"),
            ),
            scale=Scale(
                ".spec.etReplicaSpecs.worker.replicas",
                ".status.replicaStatuses.Worker.active",
                ".status.replicaStatuses.Worker.selector",
            ),
            keywords=keywords(tuple(row for row in CONSTRAINTS if row.field.startswith("spec"))),
            validations=validations(CONSTRAINTS),
        )
    },
    singular="trainingjob",
    short_names={},
    read=read,
    owns=launcher.OWNS,
    follows=workers.FOLLOWS,
    annotates=frozenset({PODS}),
    scalers=scalers.SCALERS,
    makes_scalers=True,
    executes=True,
    role_rules=launcher.ROLE_RULES,
    outcomes=present.outcomes,
    suspension=Suspension(("metadata", "annotations", SUSPENDED), "true", "false"),
    event_reason=event_reason,
    plan=main.plan,
)
