"""The Python client of edgeai: typed objects of every kind, over any kubeconfig (docs/client.md).

What is named here is public; the modules below are not.
"""

from edgeai.client.asynchronous import AsyncClient, Event
from edgeai.client.blocking import Client
from edgeai.client.errors import (
    ClientUnusable,
    InvalidObject,
    JobNotFound,
    ObjectGone,
    UnknownKind,
    WaitTimeout,
)
from edgeai.client.logs import LogLine
from edgeai.client.objects import (
    Dataset,
    FederatedLearningJob,
    JointInferenceService,
    Model,
    PyTorchJob,
    Resource,
    ScaleIn,
    ScaleOut,
    TFJob,
    TrainingJob,
)
from edgeai.client.state import State, state_of
from edgeai.client.words import resource
from globalmanager.kinds.dataset.types import DatasetSpec
from globalmanager.kinds.federatedlearningjob.types import FederatedLearningJobSpec
from globalmanager.kinds.jointinferenceservice.types import JointInferenceServiceSpec
from globalmanager.kinds.model.types import ModelSpec
from globalmanager.kinds.pytorchjob.types import PyTorchJobSpec
from globalmanager.kinds.tfjob.types import TFJobSpec
from globalmanager.kinds.trainingjob.types import TrainingJobSpec
from globalmanager.rules.elastic.scalers import ScaleInSpec, ScaleOutSpec

__all__ = [
    "AsyncClient",
    "Client",
    "ClientUnusable",
    "Dataset",
    "DatasetSpec",
    "Event",
    "FederatedLearningJob",
    "FederatedLearningJobSpec",
    "InvalidObject",
    "JobNotFound",
    "JointInferenceService",
    "JointInferenceServiceSpec",
    "LogLine",
    "Model",
    "ModelSpec",
    "ObjectGone",
    "PyTorchJob",
    "PyTorchJobSpec",
    "Resource",
    "ScaleIn",
    "ScaleInSpec",
    "ScaleOut",
    "ScaleOutSpec",
    "State",
    "TFJob",
    "TFJobSpec",
    "TrainingJob",
    "TrainingJobSpec",
    "UnknownKind",
    "WaitTimeout",
    "resource",
    "state_of",
]
