"""A worker in a process of its own, to be killed: `python -m tests.workersdk.federated.worker`.

Arguments: `aggregator ROUNDS PARTICIPANTS MINIMUM` or `trainer SECONDS NUMBER…`, the time that
training takes and the data. The environment is that of a FederatedLearningJob's workers.
"""

import logging
import resource
import sys
import time
from collections.abc import Mapping
from typing import Any

from tests.workersdk.federated.conftest import Mean
from workersdk.federated.learning import FederatedLearning
from workersdk.federated.rounds import RoundSettings
from workersdk.federated.server import AggregationServer


class SlowMean(Mean):
    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def train(self, **data: Any) -> Mapping[str, float]:
        time.sleep(self._seconds)  # the training
        return super().train(**data)


def main(role: str, *arguments: str) -> None:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    if role == "aggregator":
        rounds, participants, least, *limit = map(int, arguments)
        for max_bytes in limit:
            resource.setrlimit(resource.RLIMIT_FSIZE, (max_bytes, max_bytes))
        settings = RoundSettings(
            rounds=rounds,
            expected_participants=participants,
            min_participants=least,
            gone_after_s=2.0,
        )
        AggregationServer(settings=settings).serve()
        return
    seconds, *data = map(float, arguments)
    FederatedLearning(SlowMean(seconds)).train(data, valid_data=data)


if __name__ == "__main__":
    main(*sys.argv[1:])
