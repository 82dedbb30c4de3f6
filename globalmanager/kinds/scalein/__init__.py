"""ScaleIn: fewer workers for a TrainingJob. The job's plan does the work."""

from globalmanager.contract import Column, Kind, Schema
from globalmanager.rules.elastic.scaler_status import (
    ScaleInStatus,
    references,
    waiting_or_refused,
)
from globalmanager.rules.elastic.scalers import ScaleInSpec, read_scale_in
from globalmanager.rules.elastic.words import SCALE_INS

KIND = Kind(
    types={
        SCALE_INS: Schema(
            spec=ScaleInSpec,
            status=ScaleInStatus,
            columns=(
                Column("Phase", "string", ".status.conditions[-1:].type"),
                Column("Age", "date", ".metadata.creationTimestamp"),
            ),
        )
    },
    singular="scalein",
    short_names={},
    read=read_scale_in,
    references=references,
    plan=waiting_or_refused,
)
