"""The aggregator of the example: joins the weights of the trainers and never sees an image.

    python3 -m edgeai.demo.federated_learning.aggregator

Besides the environment variables of every aggregator, this aggregator reads ROUNDS,
MIN_PARTICIPANTS and GONE_AFTER_SECONDS.
"""

from collections.abc import Mapping
from typing import Annotated, Final

import msgspec

from edgeai.demo.script import read, run
from edgeai.worker.federated.aggregations import FedAvgM
from edgeai.worker.federated.environment import participants
from edgeai.worker.federated.rounds import RoundSettings
from edgeai.worker.federated.server import AggregationServer

ROUNDS: Final = 40
# Smaller than the default, because the nodes have different digits and so different gradients.
MOMENTUM: Final = 0.7

Positive = Annotated[int, msgspec.Meta(ge=1)]


class Settings(msgspec.Struct, frozen=True, kw_only=True, rename=str.upper):
    rounds: Positive = ROUNDS
    min_participants: Positive | None = None
    """A round with fewer participants waits. Default: two, or one if there is only one trainer."""
    gone_after_seconds: Annotated[float, msgspec.Meta(gt=0)] = 60.0
    """The aggregator does not wait for a trainer that has been silent for this long."""


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
