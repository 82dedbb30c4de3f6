"""The edge worker of the example: streams the images of a Dataset through joint inference.

    python3 -m edgeai.demo.joint_inference.edge_worker

The worker prints JSON lines. During the stream it prints "progress" lines. Then it prints one
"result" line, which compares joint inference with the edge model alone and the cloud model alone.
Then it prints "serving" and waits for SIGTERM. The exit code is 0. The worker counts and reports
only the pass with joint inference. The passes with one model alone are only measurements.

Besides the environment variables of every edge worker, this worker reads DATASET_PATH, BATCH_SIZE,
STREAM_RATE, STREAM_REPEAT, WAIT_FOR_CLOUD_SECONDS and CLOUD_LATENCY_MS (see Settings).
"""

import json
import signal
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import numpy as np

from edgeai.demo import digits
from edgeai.demo.digits import Digits
from edgeai.demo.joint_inference.models import EdgeModel
from edgeai.demo.script import read, run
from edgeai.worker import AnsweredBy, CloudOnly, Counts, EdgeOnly, InferenceResult, JointInference

PROGRESS_S: Final = 0.1
FLUSH_S: Final = 5.0
MAX_LATENCIES: Final = 100_000  # a stream may be endless, so only the newest latencies are kept

NotNegative = Annotated[float, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]


class Settings(msgspec.Struct, frozen=True, kw_only=True, rename=str.upper):
    dataset_path: str
    """Path of the CSV file that train.py wrote."""
    batch_size: Positive = 1
    """Number of images in one inference call."""
    stream_rate: NotNegative = 0.0
    """Images per second; 0 streams the images as fast as the models answer."""
    stream_repeat: Positive = 1
    """Number of passes over the whole Dataset."""
    wait_for_cloud_seconds: NotNegative = 0.0
    """Longest wait for the cloud worker before the stream begins; 0 does not wait."""
    cloud_latency_ms: NotNegative = 0.0
    """Simulated latency of the cloud worker. The worker only copies this value to the result."""


class Tally:
    """The counts, correct answers and latencies of one pass over the images."""

    def __init__(self) -> None:
        self.counts = Counts()
        self.correct = 0
        self.cloud_correct = 0  # correct answers of the cloud model
        self.latencies_s: deque[float] = deque(maxlen=MAX_LATENCIES)

    def add(
        self, results: Sequence[InferenceResult], labels: digits.Labels, latency_s: float
    ) -> None:
        self.latencies_s.append(latency_s)
        for result, label in zip(results, labels, strict=True):
            is_correct = int(np.argmax(result.answer) == label)
            self.correct += is_correct
            self.cloud_correct += is_correct * (result.answered_by is AnsweredBy.CLOUD)

    def progress(self) -> dict[str, Any]:
        counts = self.counts
        return {
            "seen": counts.seen,
            "hard": counts.hard,
            "uploaded": counts.uploaded,
            "fallbacks": counts.fallbacks,
            "correct": self.correct,
        }

    def latency_ms(self) -> dict[str, float]:
        latencies_ms = np.array(self.latencies_s) * 1000
        return {
            "mean": round(float(latencies_ms.mean()), 3),
            "p95": round(float(np.percentile(latencies_ms, 95)), 3),
        }


def main(environ: Mapping[str, str]) -> None:
    signal.signal(signal.SIGTERM, stop)
    settings = read(environ, Settings)
    images = digits.load(Path(settings.dataset_path))
    model = EdgeModel()
    with JointInference(model) as joint:
        joint.wait_for_cloud(settings.wait_for_cloud_seconds)
        tally = stream(joint, images, settings, shows_progress=True)
        joint.flush(FLUSH_S)
        emit("result", compare(tally, model, images, settings))
        emit("serving", {})
        while True:
            signal.pause()  # the reporter's thread continues to send heartbeats


def stop(_number: int, _frame: Any) -> None:
    raise SystemExit(0)  # leaves the `with` in main(), which sends the last report


def stream(
    joint: JointInference,
    images: Digits,
    settings: Settings,
    *,
    shows_progress: bool = False,
) -> Tally:
    tally = Tally()
    started_s = shown_s = time.monotonic()
    for batch in batches(images, settings):
        if settings.stream_rate:
            due_s = started_s + tally.counts.seen / settings.stream_rate
            time.sleep(max(0.0, due_s - time.monotonic()))
        before_s = time.perf_counter()
        results = joint.inference(batch.images)
        latency_s = time.perf_counter() - before_s
        tally.counts = joint.counts
        tally.add(results, batch.labels, latency_s)
        if shows_progress and time.monotonic() - shown_s >= PROGRESS_S:
            emit("progress", tally.progress())
            shown_s = time.monotonic()
    if shows_progress:
        emit("progress", tally.progress())
    return tally


def batches(images: Digits, settings: Settings) -> Iterator[Digits]:
    for _ in range(settings.stream_repeat):
        for start in range(0, len(images.labels), settings.batch_size):
            end = start + settings.batch_size
            yield Digits(images.images[start:end], images.labels[start:end])


def compare(joint: Tally, model: EdgeModel, images: Digits, settings: Settings) -> dict[str, Any]:
    """Returns: the fields of the "result" line. Args: joint: the counts of joint inference"""
    once = msgspec.structs.replace(settings, stream_rate=0.0, stream_repeat=1)
    with JointInference(model, EdgeOnly(), is_reporting=False, loads_model=False) as alone:
        edge = stream(alone, images, once)
    with JointInference(model, CloudOnly(), is_reporting=False, loads_model=False) as alone:
        cloud = stream(alone, images, once)
    return {
        "samples": joint.counts.seen,
        "edge_accuracy": share(edge.correct, edge.counts.seen),
        "joint_accuracy": share(joint.correct, joint.counts.seen),
        # Share of the images that the cloud answered; null if the cloud answered no image.
        "cloud_accuracy": share(cloud.cloud_correct, cloud.counts.answered_by_cloud),
        "cloud_unanswered": cloud.counts.fallbacks,
        "upload_ratio": share(joint.counts.uploaded, joint.counts.seen),
        "worker_upload_count": joint.counts.uploaded,
        "latency_ms": {
            "edge": edge.latency_ms(),
            "joint": joint.latency_ms(),
            "cloud": cloud.latency_ms(),
        },
        "simulated_cloud_latency_ms": settings.cloud_latency_ms,
        "counts": msgspec.to_builtins(joint.counts),
    }


def share(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None


def emit(event: str, fields: Mapping[str, Any]) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)


if __name__ == "__main__":
    run(main)
