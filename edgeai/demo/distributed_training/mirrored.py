"""Trains one network of handwritten digits in several processes with TensorFlow, on CPUs.

    python3 mirrored.py DIRECTORY

Each process of the job runs this script and has a copy of the network. In each step the processes
average their gradients. The script needs TensorFlow and NumPy and nothing of edgeai. TF_CONFIG
comes from the TFJob. DIRECTORY has the files of data.py. The chief prints its progress as JSON.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import tensorflow as tf

BATCH = 60  # images of one step, of all processes together


def train(directory: Path, epochs: int) -> None:
    tf.keras.utils.set_random_seed(0)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        network = tf.keras.Sequential(
            [tf.keras.Input([64]), tf.keras.layers.Dense(64, "relu"), tf.keras.layers.Dense(10)]
        )
        optimizer = tf.keras.optimizers.SGD(0.1, momentum=0.9)
        optimizer.build(network.trainable_variables)

    def step_of_one(pixels: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            losses = tf.keras.losses.sparse_categorical_crossentropy(
                labels, network(pixels), from_logits=True
            )
            loss = tf.nn.compute_average_loss(losses, global_batch_size=BATCH)
        gradients = tape.gradient(loss, network.trainable_variables)
        optimizer.apply_gradients(zip(gradients, network.trainable_variables, strict=True))
        return loss

    def step_of_all(pixels: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        losses = strategy.run(step_of_one, args=(pixels, labels))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    step = tf.function(step_of_all)
    tell(strategy, "start")
    images = tf.data.Dataset.from_tensor_slices(load(directory / "train.csv"))
    shuffled = images.shuffle(len(images), seed=0).batch(BATCH, drop_remainder=True)
    batches = strategy.experimental_distribute_dataset(shuffled)
    for epoch in range(epochs):
        losses = [float(step(pixels, labels)) for pixels, labels in batches]
        tell(strategy, "progress", epoch=epoch + 1, loss=round(sum(losses) / len(losses), 4))

    pixels, labels = load(directory / "held_out.csv")
    right = np.mean(np.argmax(network(pixels), axis=1) == labels)
    tell(strategy, "result", step=epochs * (len(images) // BATCH), accuracy=round(float(right), 4))


def load(path: Path) -> tuple[np.ndarray, np.ndarray]:
    rows = np.loadtxt(path, delimiter=",", skiprows=1, dtype=np.float32)
    return rows[:, 1:] / 16, rows[:, 0].astype(np.int64)


def tell(strategy: tf.distribute.Strategy, event: str, **fields: float) -> None:
    if strategy.cluster_resolver.task_type == "chief":
        record = {"event": event, "replicas": strategy.num_replicas_in_sync, **fields}
        print(json.dumps(record), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--epochs", type=int, default=20)
    chosen = parser.parse_args()
    train(chosen.directory, chosen.epochs)
