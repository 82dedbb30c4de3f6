"""Who may take part in a federation, and with how many samples at most.

The aggregator reads the file FEDERATION_PARTICIPANTS. The GlobalManager writes the file, a JSON map
from the name of each trainer to the number of samples in its Dataset, or null while the number is
not known: then the weight is bounded by the others'. Kubernetes replaces a changed file.
"""

import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from edgeai import participants
from edgeai.errors import SettingsError

log = logging.getLogger(__name__)

Limits = dict[str, Annotated[int, msgspec.Meta(ge=0)] | None]


class Participants:
    """Args: path: None: everybody who has a secret may take part

    Raises: SettingsError if the file cannot be read now. A later error keeps the last map
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._content = b""
        self._limits: Limits = {}
        if path is not None:
            try:
                self._read(path)
            except (OSError, msgspec.DecodeError) as error:
                raise SettingsError(
                    "environment variable FEDERATION_PARTICIPANTS",
                    f"{path} cannot be read: {error}; give a JSON map from names to numbers",
                ) from error

    def may_join(self, name: str) -> bool:
        return self._path is None or name in self._current()

    def limit(self, name: str) -> int | None:
        """The number of samples in the Dataset of `name`; None: it is not known."""
        return self._current().get(name)

    def weights(self, claims: Mapping[str, int]) -> dict[str, int]:
        """Participant -> the number of samples with which it counts; without the participants that
        have no samples. Without a file, claims are weights.

        Args: claims: participant -> the number of samples that it claims to have
        """
        positive = {name: number for name, number in claims.items() if number > 0}
        if self._path is None:
            return positive
        limits = self._current().items()
        counts = {name: number for name, number in limits if number is not None}
        weights = participants.weights(positive, counts)
        weights = {name: number for name, number in weights.items() if number > 0}
        # A Dataset may turn out to be empty after its trainer has sent its update.
        return weights or dict.fromkeys(positive, 1)

    def _current(self) -> Limits:
        with self._lock:
            if self._path is not None:
                try:
                    self._read(self._path)
                except (OSError, msgspec.DecodeError) as error:
                    log.warning("the participants cannot be read, the last ones hold: %s", error)
            return self._limits

    def _read(self, path: Path) -> None:
        content = path.read_bytes()
        if content != self._content:
            self._limits = msgspec.json.decode(content, type=Limits)
            self._content = content
