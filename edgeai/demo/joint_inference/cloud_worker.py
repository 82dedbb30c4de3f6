"""The cloud worker of the example: serves the big model until SIGTERM.

    python3 -m edgeai.demo.joint_inference.cloud_worker

Besides the environment variables of every cloud worker, this worker reads CLOUD_LATENCY_MS
(default 0). The worker sleeps for this long before each answer, to simulate the network delay to a
distant cloud. A table of latencies must name this value.
"""

import time
from collections.abc import Mapping
from typing import Annotated

import msgspec

from edgeai.demo.digits import Floats
from edgeai.demo.joint_inference.models import CloudModel
from edgeai.demo.script import read, run
from edgeai.worker import BigModelService


class Settings(msgspec.Struct, frozen=True, rename=str.upper):
    cloud_latency_ms: Annotated[float, msgspec.Meta(ge=0, le=60_000)] = 0.0


class DistantModel(CloudModel):
    """A CloudModel that sleeps for `latency_s` seconds before each answer."""

    def __init__(self, latency_s: float) -> None:
        self._latency_s = latency_s

    def predict(self, batch: Floats) -> Floats:
        time.sleep(self._latency_s)
        return super().predict(batch)


def main(environ: Mapping[str, str]) -> None:
    settings = read(environ, Settings)
    BigModelService(DistantModel(settings.cloud_latency_ms / 1000)).serve()


if __name__ == "__main__":
    run(main)
