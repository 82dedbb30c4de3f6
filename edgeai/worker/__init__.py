"""The library for user workers: joint inference with an edge model and a cloud model, and
incremental learning.

It imports no manager and no ML framework, starts no event loop, and does not configure logging.
"""

from edgeai.worker.big_model_service import BigModelService
from edgeai.worker.bounded_server import ServerLimits
from edgeai.worker.cloud_client import CloudClient
from edgeai.worker.environment import Address, WorkerEnvironment
from edgeai.worker.errors import EstimatorError, MiningError, TensorError
from edgeai.worker.estimator import Estimator
from edgeai.worker.hard_example_mining import (
    IBT,
    CloudOnly,
    CrossEntropy,
    Decision,
    EdgeOnly,
    HardExampleMining,
    Random,
    Threshold,
)
from edgeai.worker.hard_examples import HardExample, hard_examples
from edgeai.worker.incremental_learning import IncrementalLearning
from edgeai.worker.joint_inference import JointInference
from edgeai.worker.results import AnsweredBy, Counts, InferenceResult, Reason

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
    "HardExample",
    "HardExampleMining",
    "IncrementalLearning",
    "InferenceResult",
    "JointInference",
    "MiningError",
    "Random",
    "Reason",
    "ServerLimits",
    "TensorError",
    "Threshold",
    "WorkerEnvironment",
    "hard_examples",
]
