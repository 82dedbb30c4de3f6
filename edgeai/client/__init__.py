"""The Python client of edgeai: typed objects of every kind, over any kubeconfig (docs/client.md).

What is named here is public; the modules below are not.
"""

from edgeai.api.actions import NotPossible
from edgeai.api.dataset import DatasetSpec
from edgeai.api.federatedlearningjob import FederatedLearningJobSpec
from edgeai.api.incrementallearningjob import IncrementalLearningJobSpec
from edgeai.api.jointinferenceservice import JointInferenceServiceSpec
from edgeai.api.model import ModelSpec
from edgeai.api.pytorchjob import PyTorchJobSpec
from edgeai.api.scalers import ScaleInSpec, ScaleOutSpec
from edgeai.api.tfjob import TFJobSpec
from edgeai.api.trainingjob import TrainingJobSpec
from edgeai.client.asynchronous import AsyncClient, Event
from edgeai.client.blocking import Client
from edgeai.client.edge_functions import Federation, Service, federate, serve
from edgeai.client.errors import (
    ClientUnusable,
    InvalidObject,
    JobNotFound,
    ObjectGone,
    UnknownKind,
    WaitTimeout,
)
from edgeai.client.handles import Job, JobFailed
from edgeai.client.logs import LogLine
from edgeai.client.objects import (
    Dataset,
    FederatedLearningJob,
    IncrementalLearningJob,
    JointInferenceService,
    Model,
    PyTorchJob,
    Resource,
    ScaleIn,
    ScaleOut,
    TFJob,
    TrainingJob,
)
from edgeai.client.program import NotShippable
from edgeai.client.state import State, state_of
from edgeai.client.training import train
from edgeai.client.words import resource

__all__ = [
    "AsyncClient",
    "Client",
    "ClientUnusable",
    "Dataset",
    "DatasetSpec",
    "Event",
    "FederatedLearningJob",
    "FederatedLearningJobSpec",
    "Federation",
    "IncrementalLearningJob",
    "IncrementalLearningJobSpec",
    "InvalidObject",
    "Job",
    "JobFailed",
    "JobNotFound",
    "JointInferenceService",
    "JointInferenceServiceSpec",
    "LogLine",
    "Model",
    "ModelSpec",
    "NotPossible",
    "NotShippable",
    "ObjectGone",
    "PyTorchJob",
    "PyTorchJobSpec",
    "Resource",
    "ScaleIn",
    "ScaleInSpec",
    "ScaleOut",
    "ScaleOutSpec",
    "Service",
    "State",
    "TFJob",
    "TFJobSpec",
    "TrainingJob",
    "TrainingJobSpec",
    "UnknownKind",
    "WaitTimeout",
    "federate",
    "resource",
    "serve",
    "state_of",
    "train",
]
