"""ScaleOut: more workers for a TrainingJob. The job's plan does the work."""

from edgeai.api.scalers import SCALE_OUT
from globalmanager.kinds.elastic.scaler_status import scaler_kind
from globalmanager.kinds.elastic.scalers import read_scale_out

KIND = scaler_kind(SCALE_OUT, read_scale_out)
