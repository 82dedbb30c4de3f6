"""TFJob: the tasks of one TensorFlow training, which find each other by TF_CONFIG."""

from edgeai.api.tfjob import DEFINITION
from globalmanager.kinds.training.kind import training_kind
from globalmanager.kinds.training.tfjob.spec import CONSTRAINTS, read

KIND = training_kind(DEFINITION, read, CONSTRAINTS, framework="tensorflow")
