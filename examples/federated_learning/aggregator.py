"""The aggregator of the example: joins what the trainers learned, never sees an image.

    python3 -m examples.federated_learning.aggregator

Environment, beside what every aggregator gets: ROUNDS, MIN_PARTICIPANTS, GONE_AFTER_SECONDS.
"""

from collections.abc import Mapping
from typing import Annotated, Final

import msgspec

from examples.script import read, run
from workersdk.federated.aggregations import FedAvgM
from workersdk.federated.environment import participants
from workersdk.federated.rounds import RoundSettings
from workersdk.federated.server import AggregationServer

ROUNDS: Final = 40
MOMENTUM: Final = 0.7  # less than by default: nodes that see other digits pull in other directions

Positive = Annotated[int, msgspec.Meta(ge=1)]


class Settings(msgspec.Struct, frozen=True, kw_only=True, rename=str.upper):
    rounds: Positive = ROUNDS
    min_participants: Positive | None = None
    """a round with fewer waits; default: two, unless one trains alone"""
    gone_after_seconds: Annotated[float, msgspec.Meta(gt=0)] = 60.0
    """a trainer that was silent for so long is not waited for"""


def main(environ: Mapping[str, str]) -> None:
    settings = read(environ, Settings)
    expected = participants(environ)
    rounds = RoundSettings(
        rounds=settings.rounds,
        expected_participants=expected,
        min_participants=settings.min_participants or min(2, expected),
        gone_after_s=settings.gone_after_seconds,
    )
    AggregationServer(FedAvgM(momentum=MOMENTUM), settings=rounds).serve()


if __name__ == "__main__":
    run(main)
