"""The GlobalManager as the LocalController dials it: its addresses, and this node's credentials.

The link dials for the session, the relay link for the relay. Both present the same credential.
"""

from typing import Final
from urllib.parse import urlsplit

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus, WebSocketException
from websockets.typing import Subprotocol

from common import wire
from common.settings import is_loopback
from common.version import user_agent
from localcontroller.link.addresses import Addresses
from localcontroller.link.conversation import CLOSE_S
from localcontroller.link.credentials import CredentialError, Credentials, Presented

NODE_HEADER: Final = "Edgeai-Node"  # for logs only; the credential identifies the node


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
