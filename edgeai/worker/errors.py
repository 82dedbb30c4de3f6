"""Errors of edgeai.worker. A wrong environment variable is an edgeai.errors.SettingsError.

EdgeAIError
├── MiningError         a hard-example algorithm cannot be created, or cannot read a prediction
├── TensorError         an array cannot be sent, or received bytes are no array
├── EstimatorError      the estimator did not return one answer for each sample, or no metrics
├── WeightsError        weights of a wrong shape, type or value
├── AggregationError    an aggregation cannot be created, or gives no usable model
└── FederationError     a trainer cannot take part

A fault of the cloud raises no error in the user's code: JointInference uses the edge's answer.
"""

from edgeai.errors import EdgeAIError


class MiningError(EdgeAIError):
    """`algorithm` is a name. `problem` names the parameter, its value and the allowed range."""

    def __init__(self, algorithm: str, problem: str) -> None:
        self.algorithm, self.problem = algorithm, problem
        super().__init__(f"hard-example algorithm {algorithm!r}: {problem}")


class TensorError(EdgeAIError):
    """The text says which dtype, shape or size is wrong."""


class EstimatorError(EdgeAIError):
    """The text says what predict() or evaluate() returned."""


class WeightsError(EdgeAIError):
    """The text names the tensor and what is wrong with it."""


class AggregationError(EdgeAIError):
    """`aggregation` is a name. `problem` names the parameter, its value and the allowed range."""

    def __init__(self, aggregation: str, problem: str) -> None:
        self.aggregation, self.problem = aggregation, problem
        super().__init__(f"aggregation {aggregation!r}: {problem}")


class FederationError(EdgeAIError):
    """The aggregator refuses the trainer. The text is the aggregator's and says what to do."""
