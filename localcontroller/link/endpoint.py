"""The GlobalManager as the LocalController dials it: its addresses, and this node's credentials.

The link dials for the session, the relay link for the relay. Both present the same credential.
"""

import random
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import urlsplit

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus, WebSocketException
from websockets.typing import Subprotocol

from common import wire
from common.version import user_agent
from edgeai.addresses import is_loopback
from localcontroller.link.conversation import CLOSE_S
from localcontroller.link.credentials import CredentialError, Credentials, Presented

NODE_HEADER: Final = "Edgeai-Node"  # for logs only; the credential identifies the node


class Addresses:
    """Chooses the address of the GlobalManager for the next dial.

    An edge may know several addresses, for example one of each replica. The first one is drawn by
    lot, so that edges spread over the replicas. A replica with more than its share of sessions
    names the address of another replica, which counts until a dial fails or its session ends.

    Args: urls: at least one; all have the same scheme
    """

    def __init__(
        self, urls: Sequence[str], *, choose: Callable[[int], int] = random.randrange
    ) -> None:
        self._urls = tuple(urls)
        self._at = choose(len(self._urls))
        self._replica_url = ""  # the address that a replica has named; "": none

    @property
    def current(self) -> str:
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


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses of the GlobalManager, and the name and credentials of this node."""

    addresses: Addresses
    node: str
    credentials: Credentials = msgspec.field(default_factory=Credentials)

    @property
    def is_secure(self) -> bool:
        return self.addresses.is_secure

    async def dial(
        self, credential: Presented, *, subprotocol: str, opening_s: float
    ) -> ClientConnection:
        """Open a WebSocket. Raises: errors of websockets and of sockets"""
        url = self.addresses.current
        return await connect(
            url,
            subprotocols=[Subprotocol(subprotocol)],
            compression=None,
            user_agent_header=user_agent(),
            additional_headers={NODE_HEADER: self.node, **credential.headers},
            ssl=credential.tls,
            proxy=None if is_loopback(urlsplit(url).hostname or "") else True,
            open_timeout=opening_s,
            ping_interval=None,  # beats check both directions
            close_timeout=CLOSE_S,
            max_size=wire.MAX_FRAME_BYTES,
        )

    async def answers(self, *, opening_s: float) -> bool:
        """Whether a server answers a dial without a token, be it with a refusal."""
        try:
            credential = Presented({}, self.credentials.tls() if self.is_secure else None)
            ws = await self.dial(credential, subprotocol=wire.SUBPROTOCOL, opening_s=opening_s)
        except InvalidStatus:
            return True
        except (CredentialError, OSError, WebSocketException):
            return False
        ws.transport.abort()
        return True
