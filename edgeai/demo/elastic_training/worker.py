"""Computes gradients for launcher.py, until the launcher closes the connection.

    python3 -m edgeai.demo.elastic_training.worker FILES HOST ADDRESS PORT TOKEN

launcher.py starts this program on each worker. FILES has `train.csv`. HOST is the name of this
worker in the list of hosts. The worker calls the launcher at ADDRESS and PORT.
"""

import argparse
import socket
from pathlib import Path
from typing import Final

import numpy as np

from edgeai.demo import digits
from edgeai.demo.digits import Digits
from edgeai.demo.elastic_training import network
from edgeai.demo.elastic_training.messages import Connection

SILENCE_S: Final = 60.0
"""A launcher that asks for nothing for so long is lost."""


def work(connection: Connection, images: Digits) -> None:
    """Answer each request with the gradient of its share. Raises: OSError at the end"""
    while True:
        request, weights = connection.receive(with_vector=True)
        chosen = np.array(request["images"], dtype=np.int64)
        share = Digits(images.images[chosen], images.labels[chosen])
        gradient, loss = network.gradient(weights, share)
        connection.send({"step": request["step"], "loss": loss}, gradient)


def main() -> None:
    parser = argparse.ArgumentParser(description="Compute gradients for the launcher.")
    parser.add_argument("files", type=Path, help="directory that has train.csv")
    parser.add_argument("host", help="name of this worker in the list of hosts")
    parser.add_argument("address", help="of the launcher")
    parser.add_argument("port", type=int, help="of the launcher")
    parser.add_argument("token", help="proves to the launcher that it has started this worker")
    arguments = parser.parse_args()
    images = digits.load(arguments.files / "train.csv")
    address = (arguments.address, arguments.port)
    connection = Connection(socket.create_connection(address, SILENCE_S), timeout_s=SILENCE_S)
    connection.send({"host": arguments.host, "token": arguments.token})
    try:
        work(connection, images)
    except ConnectionError:
        return  # the launcher needs this worker no longer


if __name__ == "__main__":
    main()
