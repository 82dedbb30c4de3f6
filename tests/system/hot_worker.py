"""An edge worker that loads its model hot and asks it without pause.

    python3 -m tests.system.hot_worker

A model file is JSON: {"answer": a number}. "broken" makes load() fail, and "gate" names a file for
which load() waits. The worker prints a line of
JSON when another version answers, and its totals after SIGUSR1.
"""

import json
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from edgeai.worker import JointInference


class Constant:
    """Gives the number in its file for every sample."""

    def __init__(self) -> None:
        self.answer = -1

    def load(self, model_url: str) -> None:
        content = json.loads(Path(model_url).read_text())
        if "broken" in content:
            raise ValueError(content["broken"])
        while "gate" in content and not Path(content["gate"]).exists():
            time.sleep(0.01)
        self.answer = content["answer"]

    def predict(self, batch: Any) -> list[int]:
        return [self.answer] * len(batch)


def tell(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


def main() -> None:
    totals_wanted = threading.Event()
    signal.signal(signal.SIGUSR1, lambda _number, _frame: totals_wanted.set())
    asked = answered = 0
    version: int | None = None
    with JointInference(Constant()) as joint:
        while True:
            asked += 3
            results = joint.inference(np.zeros((3, 2)))
            answered += len(results)
            versions = {(result.model_version, result.answer) for result in results}
            assert len(versions) == 1, f"two versions in one batch: {versions}"
            if results[0].model_version != version:
                version = results[0].model_version
                tell(version=version, answer=results[0].answer)
            if totals_wanted.is_set():
                totals_wanted.clear()
                tell(asked=asked, answered=answered)
            time.sleep(0.005)


if __name__ == "__main__":
    main()
