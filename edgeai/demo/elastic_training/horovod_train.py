"""Trains one network of handwritten digits with Horovod and PyTorch while workers come and go.

    horovodrun --host-discovery-script /etc/edl/discover_hosts.sh --min-np 1 --max-np 4 \
        python3 horovod_train.py FILES

Each worker runs this script. It needs Horovod, PyTorch and NumPy, and nothing of edgeai. FILES has
the images, on each worker. Every few steps each worker commits its state. When a worker is lost,
the others go back to the last commit and go on without it. When workers come or leave in order, no
step is lost. The worker of rank 0 prints each step as JSON.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any, Final

import horovod.torch as hvd
import numpy as np
import torch
from torch import Tensor, nn

BATCH: Final = 60
"""Images of one step, of all workers together."""
COMMIT_EVERY: Final = 5
"""Steps between two commits; the loss of a worker costs at most this number."""

Images = tuple[Tensor, Tensor]


# Runs again after each change of the workers, with the state of the oldest worker.
@hvd.elastic.run  # type: ignore[untyped-decorator]  # Horovod has no types
def train(state: Any, images: Images, arguments: argparse.Namespace) -> None:
    while state.step < arguments.steps:
        pixels, labels = share(images, state.step)
        state.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(state.model(pixels), labels)
        loss.backward()
        state.optimizer.step()  # with the average of the gradients of all workers
        state.step += 1
        tell("progress", step=state.step, loss=round(loss.item(), 4))
        if state.step % COMMIT_EVERY == 0:
            state.commit()  # here Horovod looks whether the workers have changed
        if not (arguments.files / "hurry").exists():
            time.sleep(arguments.pause_s)


def share(images: Images, step: int) -> Images:
    """This worker's part of the images of a step. It depends on nothing but step, rank and size."""
    pixels, labels = images
    epoch, number = divmod(step, len(labels) // BATCH)
    order = np.random.default_rng(epoch).permutation(len(labels))
    batch = order[number * BATCH : (number + 1) * BATCH]
    share = torch.from_numpy(batch[hvd.rank() :: hvd.size()])
    return pixels[share], labels[share]


def load(path: Path) -> Images:
    rows = np.loadtxt(path, delimiter=",", skiprows=1, dtype=np.float32)
    return torch.tensor(rows[:, 1:] / 16), torch.tensor(rows[:, 0]).long()


def tell(event: str, **fields: float) -> None:
    if hvd.rank() == 0:
        record = {"event": event, "workers": hvd.size(), **fields}
        print(json.dumps(record), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("files", type=Path, help="directory with train.csv and held_out.csv")
    parser.add_argument("--steps", type=int, default=460)
    parser.add_argument(
        "--pause-s", type=float, default=0.0, help="after each step; none if FILES/hurry"
    )
    arguments = parser.parse_args()
    hvd.init()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        named_parameters=model.named_parameters(),
    )
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, step=0)
    train(state, load(arguments.files / "train.csv"), arguments)
    pixels, labels = load(arguments.files / "held_out.csv")
    right = (model(pixels).argmax(1) == labels).float().mean().item()
    tell("result", step=state.step, accuracy=round(right, 4))


if __name__ == "__main__":
    main()
