"""ScaleOut: more workers for a TrainingJob. The job's plan does the work."""

from globalmanager.contract import Column, Kind, Schema
from globalmanager.rules.elastic.scaler_status import (
    ScaleOutStatus,
    references,
    waiting_or_refused,
)
from globalmanager.rules.elastic.scalers import ScaleOutSpec, read_scale_out
from globalmanager.rules.elastic.words import SCALE_OUTS

KIND = Kind(
    types={
        SCALE_OUTS: Schema(
            spec=ScaleOutSpec,
            status=ScaleOutStatus,
            columns=(
                Column("Phase", "string", ".status.conditions[-1:].type"),
                Column("Age", "date", ".metadata.creationTimestamp"),
            ),
        )
    },
    singular="scaleout",
    short_names={},
    read=read_scale_out,
    references=references,
    plan=waiting_or_refused,
)
