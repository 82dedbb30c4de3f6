"""The library for user workers: joint inference with an edge model and a cloud model.

It imports no GlobalManager, no LocalController and no ML framework. It starts no event loop, and
does not configure logging.
"""

from workersdk.big_model_service import BigModelService
from workersdk.bounded_server import ServerLimits
from workersdk.cloud_client import CloudClient
from workersdk.environment import Address, WorkerEnvironment
from workersdk.errors import EstimatorError, MiningError, TensorError
from workersdk.estimator import Estimator
from workersdk.hard_example_mining import (
    IBT,
    CloudOnly,
    CrossEntropy,
    Decision,
    EdgeOnly,
    HardExampleMining,
    Random,
    Threshold,
)
from workersdk.joint_inference import JointInference
from workersdk.results import AnsweredBy, Counts, InferenceResult, Reason

__all__ = [
    "IBT",
    "Address",
    "AnsweredBy",
    "BigModelService",
    "CloudClient",
    "CloudOnly",
    "Counts",
    "CrossEntropy",
    "Decision",
    "EdgeOnly",
    "Estimator",
    "EstimatorError",
    "HardExampleMining",
    "InferenceResult",
    "JointInference",
    "MiningError",
    "Random",
    "Reason",
    "ServerLimits",
    "TensorError",
    "Threshold",
    "WorkerEnvironment",
]
