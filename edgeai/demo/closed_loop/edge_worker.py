"""The edge worker of the example: recognises the images of its node over and over.

    python3 -m edgeai.demo.closed_loop.edge_worker

The worker prints a JSON line "answers" once a second: the version that answered, how many images it
has had asked and answered since it started, and how many of them the edge's own model recognised
with this version.

Besides the environment variables of every edge worker, this worker reads NODE_NAME, IMAGES_DIR and
STREAM_RATE (see Settings).
"""

import itertools
import signal
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import msgspec
import numpy as np

from edgeai.demo import digits
from edgeai.demo.closed_loop.classifier import Classifier
from edgeai.demo.joint_inference.edge_worker import emit, stop
from edgeai.demo.script import read, run
from edgeai.worker import InferenceResult, JointInference

PRINT_S: Final = 1.0
BATCH: Final = 4
WAIT_FOR_CLOUD_S: Final = 30.0


class Settings(msgspec.Struct, frozen=True, kw_only=True, rename=str.upper):
    node_name: str
    images_dir: str
    """A directory with NODE_NAME.csv, as data.py writes it."""
    stream_rate: Annotated[float, msgspec.Meta(gt=0)] = 60.0
    """Images per second."""


class Tally:
    def __init__(self) -> None:
        self._asked = self._answered = 0
        self._seen, self._correct = Counter[int](), Counter[int]()

    def add(self, results: Sequence[InferenceResult], labels: digits.Labels) -> None:
        self._asked += len(labels)
        for result, label in zip(results, labels, strict=True):
            self._answered += 1
            self._version = result.model_version or 0
            self._seen[self._version] += 1
            self._correct[self._version] += int(np.argmax(result.edge_answer) == label)

    def print(self) -> None:
        fields = {
            "asked": self._asked,
            "answered": self._answered,
            "version": self._version,
            "seen": self._seen[self._version],
            "correct": self._correct[self._version],
        }
        emit("answers", fields)


def main(environ: Mapping[str, str]) -> None:
    signal.signal(signal.SIGTERM, stop)
    settings = read(environ, Settings)
    images = digits.load(Path(settings.images_dir) / f"{settings.node_name}.csv")
    tally, printed_s = Tally(), time.monotonic()
    with JointInference(Classifier()) as joint:
        joint.wait_for_cloud(WAIT_FOR_CLOUD_S)
        for start in itertools.cycle(range(0, len(images) - BATCH, BATCH)):
            labels = images.labels[start : start + BATCH]
            tally.add(joint.inference(images.images[start : start + BATCH]), labels)
            if time.monotonic() - printed_s >= PRINT_S:
                tally.print()
                printed_s = time.monotonic()
            time.sleep(BATCH / settings.stream_rate)


if __name__ == "__main__":
    run(main)
