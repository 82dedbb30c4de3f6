"""The API's words of elastic training: resources, labels, states of scalers.

Source: AliyunContainerService/et-operator, pkg/api/v1alpha1 and pkg/controllers.
"""

import enum
from typing import Final

from edgeai.api.resources import ResourceType

GROUP: Final = "kai.alibabacloud.com"
_VERSION: Final = "v1alpha1"
TRAINING_JOBS: Final = ResourceType(GROUP, _VERSION, "trainingjobs", "TrainingJob")
SCALE_OUTS: Final = ResourceType(GROUP, _VERSION, "scaleouts", "ScaleOut")
SCALE_INS: Final = ResourceType(GROUP, _VERSION, "scaleins", "ScaleIn")

LAUNCHER: Final = "launcher"
WORKER: Final = "worker"

LABEL_GROUP: Final = "group-name"
LABEL_JOB: Final = "training-job-name"
LABEL_ROLE: Final = "training-job-role"
LABEL_INDEX: Final = "replica-index"
LABEL_SCALE_OUT: Final = "scaleout-name"
"""The ScaleOut that added a worker."""


class ScalerState(enum.StrEnum):
    """The phase of a ScaleOut or ScaleIn, and the type of its conditions."""

    CREATED = "Created"
    SCALING = "Scaling"
    SCRIPT_EXECUTED = "ScriptExecuted"
    SUCCEEDED = "ScaleSucceeded"
    FAILED = "ScaleFailed"


MAY_SCALE: Final = ("Running", "Scaling")
"""The phases of a TrainingJob in which a scaler can begin."""
SCALER_ENDS: Final = (ScalerState.SUCCEEDED, ScalerState.FAILED)
