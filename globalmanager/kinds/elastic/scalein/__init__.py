"""ScaleIn: fewer workers for a TrainingJob. The job's plan does the work."""

from edgeai.api.scalers import SCALE_IN
from globalmanager.kinds.elastic.scaler_status import scaler_kind
from globalmanager.kinds.elastic.scalers import read_scale_in

KIND = scaler_kind(SCALE_IN, read_scale_in)
