"""Errors of workersdk. A wrong environment variable is a common.errors.SettingsError.

EdgeAIError
├── MiningError         a hard-example algorithm cannot be made, or cannot read a prediction
├── TensorError         an array, or the bytes of one, that cannot travel
├── EstimatorError      the estimator broke its promise of one answer per sample
├── WeightsError        weights of a wrong shape, type or value
├── AggregationError    a way to aggregate that cannot be made
└── FederationError     a trainer cannot take part

A fault of the cloud is never raised to the user's code: the edge's answer is used then.
"""

from common.errors import EdgeAIError


class MiningError(EdgeAIError):
    """`algorithm` is its registered name, `problem` names the parameter, the value, the range."""

    def __init__(self, algorithm: str, problem: str) -> None:
        self.algorithm, self.problem = algorithm, problem
        super().__init__(f"hard-example algorithm {algorithm!r}: {problem}")


class TensorError(EdgeAIError):
    """The text says which dtype, shape or size is wrong."""


class EstimatorError(EdgeAIError):
    """The text says what predict() gave back."""


class WeightsError(EdgeAIError):
    """The text names the tensor and what is wrong with it."""


class AggregationError(EdgeAIError):
    """`aggregation` is its name, `problem` names the parameter, the value, the range."""

    def __init__(self, aggregation: str, problem: str) -> None:
        self.aggregation, self.problem = aggregation, problem
        super().__init__(f"aggregation {aggregation!r}: {problem}")


class FederationError(EdgeAIError):
    """The aggregator refused a request for good. The text is its own and says what to do."""
