"""ScaleOut: more workers for a TrainingJob. The job's plan does the work."""

from globalmanager.rules.elastic.scaler_status import ScaleOutStatus, scaler_kind
from globalmanager.rules.elastic.scalers import ScaleOutSpec, read_scale_out
from globalmanager.rules.elastic.words import SCALE_OUTS

KIND = scaler_kind(SCALE_OUTS, ScaleOutSpec, ScaleOutStatus, read_scale_out)
