"""The library that runs inside user workers: joint inference of an edge and a cloud model.

Imports neither manager and no ML framework, starts no event loop, configures no logging.
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
