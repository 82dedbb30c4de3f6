"""Trains one network of handwritten digits in several processes with PyTorch, on CPUs.

    python3 train.py DIRECTORY

Each process of the job runs this script. The script needs PyTorch and NumPy and nothing of edgeai.
RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT come from the PyTorchJob, or from torchrun. DIRECTORY
has the files of data.py. The process of rank 0 saves a checkpoint there after each epoch and prints
its progress as JSON. A restarted job goes on from the checkpoint.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

BATCH = 60  # images of one step, of all processes together


def train(directory: Path, epochs: int, pause_s: float) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    checkpoint = directory / "checkpoint.pt"
    epoch = step = 0
    is_first = dist.get_rank() == 0
    saved = [torch.load(checkpoint) if is_first and checkpoint.exists() else None]
    dist.broadcast_object_list(saved)  # all go on from the same state, also after a restart
    if saved[0]:
        network.load_state_dict(saved[0]["network"])
        optimizer.load_state_dict(saved[0]["optimizer"])
        epoch, step = saved[0]["epoch"], saved[0]["step"]
    tell("start", epoch=epoch, step=step)

    images = load(directory / "train.csv")
    sampler: DistributedSampler[Tensor] = DistributedSampler(images)
    loader = DataLoader(images, batch_size=BATCH // dist.get_world_size(), sampler=sampler)
    model = DistributedDataParallel(network)
    while epoch < epochs:
        sampler.set_epoch(epoch)
        losses = []
        for pixels, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(pixels), labels)
            loss.backward()  # averages the gradients of all processes
            optimizer.step()
            losses.append(loss.item())
            step += 1
        epoch += 1
        if is_first:
            state = {"network": network.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state | {"epoch": epoch, "step": step}, checkpoint.with_suffix(".new"))
            checkpoint.with_suffix(".new").rename(checkpoint)
        tell("progress", epoch=epoch, step=step, loss=round(sum(losses) / len(losses), 4))
        if not (directory / "hurry").exists():
            time.sleep(pause_s)

    pixels, labels = load(directory / "held_out.csv").tensors
    right = (network(pixels).argmax(1) == labels).float().mean().item()
    tell("result", step=step, accuracy=round(right, 4))


def load(path: Path) -> TensorDataset:
    rows = np.loadtxt(path, delimiter=",", skiprows=1, dtype=np.float32)
    return TensorDataset(torch.tensor(rows[:, 1:] / 16), torch.tensor(rows[:, 0]).long())


def tell(event: str, **fields: float) -> None:
    if dist.get_rank() == 0:
        record = {"event": event, "world_size": dist.get_world_size(), **fields}
        print(json.dumps(record), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument(
        "--pause-s", type=float, default=0.0, help="after each epoch; none if DIRECTORY/hurry"
    )
    chosen = parser.parse_args()
    dist.init_process_group("gloo")
    train(chosen.directory, chosen.epochs, chosen.pause_s)
    dist.destroy_process_group()
