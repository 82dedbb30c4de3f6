"""A federation of Flower, as `federated` measures one of edgeai. Runs in a Python that has Flower.

    python tests/bench/flower.py aggregator ADDRESS TRAINERS ROUNDS
    python tests/bench/flower.py trainer ADDRESS PARAMETERS

The gRPC server with FedAvg, and NumPy clients. Training adds one to each number, as there. The
aggregator prints, as that of `federated`, the seconds of its rounds and its peak of memory in KiB.
"""

import itertools
import json
import os
import resource
import sys
import time
from typing import Any

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"

import flwr
import numpy as np


class Timed(flwr.server.strategy.FedAvg):  # type: ignore[misc]  # Flower is not installed here
    """FedAvg that notes when each round ended."""

    def __init__(self, trainers: int) -> None:
        super().__init__(
            fraction_evaluate=0.0,
            min_fit_clients=trainers,
            min_available_clients=trainers,
            accept_failures=False,
        )
        self.ends: list[float] = []

    def aggregate_fit(self, *arguments: Any) -> Any:
        result = super().aggregate_fit(*arguments)
        self.ends.append(time.monotonic())
        return result


class Plain(flwr.client.NumPyClient):  # type: ignore[misc]
    def __init__(self, parameters: int) -> None:
        self._weights = [np.zeros(parameters, dtype=np.float32)]

    def get_parameters(self, config: Any) -> Any:
        return self._weights

    def fit(self, parameters: Any, config: Any) -> Any:
        return [each + 1 for each in parameters], 1, {}


def aggregate(address: str, trainers: str, rounds: str) -> None:
    strategy = Timed(int(trainers))
    flwr.server.start_server(
        server_address=address,
        config=flwr.server.ServerConfig(num_rounds=int(rounds)),
        strategy=strategy,
    )
    assert len(strategy.ends) == int(rounds), "a round failed"
    seconds = [after - before for before, after in itertools.pairwise(strategy.ends)]
    print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss]), flush=True)


def train(address: str, parameters: str) -> None:
    client = Plain(int(parameters)).to_client()
    flwr.client.start_client(server_address=address, client=client)


if __name__ == "__main__":
    role = aggregate if sys.argv[1] == "aggregator" else train
    role(*sys.argv[2:])
