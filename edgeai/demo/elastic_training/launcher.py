"""Trains one network of handwritten digits with as many workers as there are at each moment.

    python3 -m edgeai.demo.elastic_training.launcher FILES

The launcher of a TrainingJob runs this program. It needs NumPy alone. FILES has the images; workers
see the same directory. The launcher holds the weights, and each worker computes the gradient of a
share of each step's images. So a lost worker costs one step that is computed again. Every few steps
the launcher saves a checkpoint; a restarted launcher goes on from there. It prints its progress as
JSON.
"""

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any, Final

import numpy as np

from edgeai.demo import digits
from edgeai.demo.digits import Floats, Labels
from edgeai.demo.elastic_training import network
from edgeai.demo.elastic_training.team import Team

BATCH: Final = 60
"""Images of one step, of all workers together."""
RATE: Final = 0.1
MOMENTUM: Final = 0.9
COMMIT_EVERY: Final = 10
"""Steps between two checkpoints. A restarted launcher repeats fewer steps than this."""
AGENT_VARIABLE: Final = "OMPI_MCA_plm_rsh_agent"
IDLE_S: Final = 0.1


class Training:
    """The state that survives workers, and the launcher by its checkpoint."""

    def __init__(self, files: Path) -> None:
        self.images = digits.load(files / "train.csv")
        self.held_out = digits.load(files / "held_out.csv")
        self.step = 0
        self.losses = 0
        """How many workers were lost."""
        self.weights = network.initial()
        self._momentum = np.zeros_like(self.weights)
        self._checkpoint = files / "checkpoint.npz"
        if self._checkpoint.exists():
            self._load()

    def batch(self) -> Labels:
        """Indices of this step's images. Each epoch has each image once, in an order of its own."""
        steps = len(self.images) // BATCH
        epoch, number = divmod(self.step, steps)
        order = np.random.default_rng(epoch).permutation(len(self.images))
        return order[number * BATCH : (number + 1) * BATCH]

    def apply(self, gradient: Floats) -> None:
        """Take one step, along the sum of the gradients of the batch."""
        self._momentum = np.float32(MOMENTUM) * self._momentum + gradient / np.float32(BATCH)
        self.weights = self.weights - np.float32(RATE) * self._momentum
        self.step += 1

    def commit(self) -> None:
        """Save the state. A reader never sees a half-written file. Raises: OSError"""
        new = self._checkpoint.with_suffix(".new")
        with new.open("wb") as file:
            np.savez(
                file,
                weights=self.weights,
                momentum=self._momentum,
                counts=np.array([self.step, self.losses]),
            )
        new.replace(self._checkpoint)

    def _load(self) -> None:
        with np.load(self._checkpoint, allow_pickle=False) as saved:
            self.weights, self._momentum = saved["weights"], saved["momentum"]
            self.step, self.losses = (int(count) for count in saved["counts"])


def train(training: Training, team: Team, *, steps: int, pause_s: float, hurry: Path) -> None:
    """Without a worker, wait for one. Args: pause_s: after each step, until `hurry` exists"""
    known_losses = training.losses
    while training.step < steps:
        team.refresh()
        training.losses = known_losses + team.losses
        found = team.gradient(training.step, training.weights, training.batch())
        if found is None:
            if not team.hosts:
                time.sleep(IDLE_S)
            continue
        gradient, loss = found
        training.apply(gradient)
        if training.step % COMMIT_EVERY == 0:
            training.commit()
            tell("progress", training, workers=len(team.hosts), loss=round(loss / BATCH, 4))
        if not hurry.exists():
            time.sleep(pause_s)


def tell(event: str, training: Training, **fields: Any) -> None:
    accuracy = round(network.accuracy(training.weights, training.held_out), 4)
    record = {"event": event, "step": training.step, "accuracy": accuracy, **fields}
    print(json.dumps(record), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train with as many workers as there are.")
    parser.add_argument("files", type=Path, help="directory with train.csv and held_out.csv")
    parser.add_argument(
        "--address",
        default=os.environ.get("POD_IP", "127.0.0.1"),
        help="of this process, for the workers; default: POD_IP",
    )
    parser.add_argument("--hosts", type=Path, default=Path("/etc/edl/discover_hosts.sh"))
    parser.add_argument(
        "--agent",
        default=os.environ.get(AGENT_VARIABLE, "ssh -o StrictHostKeyChecking=no"),
        help="starts programs on workers; default: the agent of the TrainingJob, or ssh",
    )
    parser.add_argument("--steps", type=int, default=460, help="default: %(default)s")
    parser.add_argument(
        "--pause-s", type=float, default=0.0, help="after each step; none if FILES/hurry"
    )
    arguments = parser.parse_args()
    training = Training(arguments.files)
    tell("start", training)
    team = Team(arguments.hosts, arguments.agent.split(), arguments.address, arguments.files)
    try:
        hurry = arguments.files / "hurry"
        train(training, team, steps=arguments.steps, pause_s=arguments.pause_s, hurry=hurry)
        tell("result", training, losses=training.losses)
    finally:
        team.close()


if __name__ == "__main__":
    main()
