"""A WebSocket that offers each message to its session before the message waits in the queue.

The queue of the WebSocket library wakes a task for each message. For a beat, which is most of what
an idle session gets, the task costs more than the beat itself.
"""

import math
from collections.abc import Callable
from typing import Any

from websockets.asyncio.server import ServerConnection
from websockets.frames import BINARY, Frame
from websockets.protocol import Event


class SessionConnection(ServerConnection):
    """The connection of a session, and of a relay, which reads from the queue alone."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.release = ""  # of the LocalController, as it tells; "" when it does not
        # when its client certificate or the CA of it ends, Unix seconds; infinite without one
        self.certificate_expires_at = math.inf
        # Takes a message at once, or returns False: then the message waits in the queue.
        self.reader: Callable[[bytes], bool] | None = None

    def process_event(self, event: Event) -> None:
        if self.reader is None or not isinstance(event, Frame):
            super().process_event(event)
            return
        is_whole = event.opcode is BINARY and event.fin
        # What waits in the queue came before.
        if is_whole and not self.recv_messages.frames and self.reader(bytes(event.data)):
            return
        super().process_event(event)
