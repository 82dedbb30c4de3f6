"""The replica types of a PyTorchJob, in the API's spelling."""

from typing import Final

MASTER: Final = "Master"
WORKER: Final = "Worker"
