"""PyTorchJob: processes of one PyTorch training, led by a master or by a rendezvous of workers."""

from edgeai.api.pytorchjob import DEFINITION
from edgeai.api.resources import AUTOSCALERS
from globalmanager.contract import UpdateRule
from globalmanager.kinds.training.changes import OWNS
from globalmanager.kinds.training.kind import training_kind
from globalmanager.kinds.training.pytorchjob.spec import CONSTRAINTS, read

KIND = training_kind(
    DEFINITION,
    read,
    CONSTRAINTS,
    framework="pytorch",
    owns={**OWNS, AUTOSCALERS: UpdateRule.REPLACE},
)
