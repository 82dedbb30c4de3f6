"""ScaleIn: fewer workers for a TrainingJob. The job's plan does the work."""

from globalmanager.rules.elastic.scaler_status import ScaleInStatus, scaler_kind
from globalmanager.rules.elastic.scalers import ScaleInSpec, read_scale_in
from globalmanager.rules.elastic.words import SCALE_INS

KIND = scaler_kind(SCALE_INS, ScaleInSpec, ScaleInStatus, read_scale_in)
