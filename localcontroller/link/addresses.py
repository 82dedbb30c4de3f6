"""Chooses the address of the GlobalManager for the next dial.

An edge may know several addresses, for example one of each replica. The first one is drawn by lot,
so that edges spread over the replicas. A replica with more than its share of sessions names the
address of another replica. That address counts until a dial to it fails, or its session ends.
"""

import random
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit


class Addresses:
    """Args: urls: at least one; all have the same scheme"""

    def __init__(
        self, urls: Sequence[str], *, choose: Callable[[int], int] = random.randrange
    ) -> None:
        self._urls = tuple(urls)
        self._at = choose(len(self._urls))
        self._replica_url = ""  # the address that a replica has named; "": none

    @property
    def current(self) -> str:
        """The URL for the next dial."""
        return self._replica_url or self._urls[self._at]

    @property
    def is_secure(self) -> bool:
        return urlsplit(self._urls[0]).scheme == "wss"

    def leave(self) -> None:
        """Choose another configured address, because a dial failed or a session ended."""
        self._replica_url = ""
        self._at = (self._at + 1) % len(self._urls)

    def use(self, url: str) -> bool:
        """Choose the address that a replica names. The credential goes there, so an address with
        another scheme than the configured ones is not used.

        Returns: whether `url` can be used. Otherwise a configured address is chosen
        """
        self.leave()
        if not _is_address(url, secure=self.is_secure):
            return False
        self._replica_url = url
        return True


def _is_address(url: str, *, secure: bool) -> bool:
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises ValueError for a wrong port
    except ValueError:
        return False
    is_plain = not (parts.username or parts.password or parts.fragment)
    return parts.scheme == ("wss" if secure else "ws") and bool(parts.hostname) and is_plain
