"""Trains a network of handwritten digits with TensorFlow and a parameter server, on CPUs.

    python3 parameter_server.py DIRECTORY

Each process of the job runs this script. The parameter server has the network. The chief gives the
workers steps to compute. Each worker changes the network as soon as it has computed a step, without
the others. Parameter server and workers never end by themselves: the TFJob ends them after the
chief. The script needs TensorFlow and NumPy and nothing of edgeai. TF_CONFIG comes from the TFJob.
DIRECTORY has the files of data.py. The chief prints its progress as JSON.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import tensorflow as tf

BATCH = 20  # images of one step of one worker


def serve(resolver: tf.distribute.cluster_resolver.ClusterResolver) -> None:
    """Be a parameter server or a worker, for ever."""
    tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id
    ).join()


def train(
    resolver: tf.distribute.cluster_resolver.ClusterResolver, directory: Path, epochs: int
) -> None:
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    workers = resolver.cluster_spec().num_tasks("worker")
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        network = Network()
    tell("start", workers=workers)

    pixels, labels = load(directory / "train.csv")

    def batches() -> tf.data.Dataset:
        images = tf.data.Dataset.from_tensor_slices((pixels, labels))
        return images.shuffle(len(labels)).repeat().batch(BATCH)

    step = tf.function(lambda iterator: strategy.run(network.step, args=next(iterator)))
    iterator = iter(coordinator.create_per_worker_dataset(batches))
    steps = len(labels) // BATCH
    for epoch in range(epochs):
        losses = [coordinator.schedule(step, args=(iterator,)) for _ in range(steps)]
        coordinator.join()
        mean = float(np.mean([loss.fetch() for loss in losses]))
        tell("progress", epoch=epoch + 1, loss=round(mean, 4))

    pixels, labels = load(directory / "held_out.csv")
    right = np.mean(np.argmax(network(pixels), axis=1) == labels)
    tell("result", step=epochs * steps, accuracy=round(float(right), 4))


class Network:
    def __init__(self) -> None:
        self.weights = [
            tf.Variable(tf.random.normal([64, 64], stddev=0.15, seed=0)),
            tf.Variable(tf.zeros([64])),
            tf.Variable(tf.random.normal([64, 10], stddev=0.15, seed=1)),
            tf.Variable(tf.zeros([10])),
        ]

    def __call__(self, pixels: tf.Tensor) -> tf.Tensor:
        first, bias, second, last_bias = self.weights
        return tf.nn.relu(pixels @ first + bias) @ second + last_bias

    def step(self, pixels: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, self(pixels))
            loss = tf.reduce_mean(losses)
        for weight, gradient in zip(self.weights, tape.gradient(loss, self.weights), strict=True):
            weight.assign_sub(0.2 * gradient)
        return loss


def load(path: Path) -> tuple[np.ndarray, np.ndarray]:
    rows = np.loadtxt(path, delimiter=",", skiprows=1, dtype=np.float32)
    return rows[:, 1:] / 16, rows[:, 0].astype(np.int64)


def tell(event: str, **fields: float) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--epochs", type=int, default=20)
    chosen = parser.parse_args()
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type == "chief":
        train(resolver, chosen.directory, chosen.epochs)
    else:
        serve(resolver)
