"""Opens the relay to the GlobalManager on the first need, and closes it when nobody needs it.

The proxy of the worker API asks for the open Carrier. The relay has a WebSocket of its own, so bulk
never delays the session. Without a session there is no relay: the relay ends with the session, and
a worker learns at once that the cloud is out of reach.
"""

import asyncio
from typing import Final, NoReturn

from websockets.exceptions import WebSocketException

from common import wire
from common.logs import get_logger
from common.relay import frames
from common.relay.carrier import Carrier, StreamRefused
from common.relay.frames import Refusal
from common.relay.session import Budget, RelaySession
from common.session import Timing
from edgeai.backoff import Backoff
from edgeai.errors import EdgeAIError
from localcontroller.link.endpoint import Endpoint

log = get_logger(__name__)

WINDOWS_BYTES: Final = 8 * 1024 * 1024
IDLE_S: Final = 60.0


class RelayLink:
    """Args: idle_s: the relay closes after this time without a stream"""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        timing: Timing,
        max_streams: int,
        idle_s: float = IDLE_S,
    ) -> None:
        self._endpoint = endpoint
        self.is_allowed = False  # a session with the GlobalManager is open
        self._timing = timing
        self._max_streams = max_streams
        self._idle_s = idle_s
        self._budget = Budget(WINDOWS_BYTES)
        self._backoff = Backoff(base_s=0.5, max_s=10.0, floor_s=0.1)
        self._not_before = 0.0  # the next dial, on the loop's clock
        self._need = asyncio.Event()
        self._dialled: asyncio.Future[Carrier] | None = None  # the outcome of the next dial
        self._carrier: Carrier | None = None
        self._problem = ""  # why the last dial opened no relay

    async def carrier(self) -> Carrier:
        """The open relay. Opens the relay first if there is none. Raises: StreamRefused"""
        if self._carrier is not None and self._carrier.is_live:
            return self._carrier
        if not self.is_allowed:
            raise StreamRefused(Refusal.UNREACHABLE, "no session with the GlobalManager now")
        if asyncio.get_running_loop().time() < self._not_before:
            raise StreamRefused(Refusal.UNREACHABLE, self._problem)
        if self._dialled is None:
            self._dialled = asyncio.get_running_loop().create_future()
            self._need.set()
        return await asyncio.shield(self._dialled)

    async def run(self) -> NoReturn:
        """Dial when somebody wants the relay, until cancelled."""
        while True:
            await self._need.wait()
            self._need.clear()
            dialled = self._dialled
            assert dialled is not None
            try:
                self._carrier = await self._dial()
            except Exception as error:  # an unexpected error must not end the LocalController
                if not isinstance(error, EdgeAIError | OSError | WebSocketException):
                    log.exception("relay failed")
                self._dialled = None
                self._note_failure(error)
                dialled.set_exception(StreamRefused(Refusal.UNREACHABLE, self._problem))
                dialled.exception()  # without a waiter asyncio would log it as never retrieved
                continue
            self._dialled = None
            dialled.set_result(self._carrier)
            try:
                await self._carrier.run()
            except Exception:  # as above
                log.exception("relay failed")
            log.info("relay over")

    def cut(self) -> None:
        """End the relay, because the session has ended."""
        if self._carrier is not None:
            self._carrier.close(wire.Close.GOING_AWAY, "the session has ended")

    def _note_failure(self, error: Exception) -> None:
        delay_s = self._backoff.next_s()
        self._not_before = asyncio.get_running_loop().time() + delay_s
        self._problem = f"no relay: {error}"
        log.warning("no relay", reason=str(error), retry_in_s=round(delay_s, 1))

    async def _dial(self) -> Carrier:
        """Raises: CredentialError, errors of websockets and of sockets"""
        credential = self._endpoint.credentials.newest(is_secure=self._endpoint.is_secure)
        websocket = await self._endpoint.dial(
            credential, subprotocol=frames.SUBPROTOCOL, opening_s=self._timing.opening_s
        )
        if websocket.subprotocol != frames.SUBPROTOCOL:
            websocket.transport.abort()
            raise EdgeAIError("this GlobalManager has no relay; upgrade the GlobalManager")
        session = RelaySession(
            now=asyncio.get_running_loop().time(),
            timing=self._timing,
            opens=True,
            budget=self._budget,
            max_streams=self._max_streams,
        )
        log.info("relay open")
        self._backoff.reset()
        return Carrier(websocket, session, max_empty_s=self._idle_s)
