"""The settings that GlobalManager and LocalController both have: of a session, and of traces."""

from typing import Annotated

import msgspec

from common.session import Timing
from common.settings import Setting


class SessionSettings(msgspec.Struct, frozen=True, kw_only=True):
    session_opening_s: Annotated[float, Setting("longest handshake of a session, seconds")] = 10.0
    session_beat_s: Annotated[
        float, Setting("longest pause between two frames to the other side, seconds")
    ] = 15.0
    session_silence_s: Annotated[
        float, Setting("time without a frame after which the other side counts as gone, seconds")
    ] = 40.0

    traces_endpoint: Annotated[
        str,
        Setting(
            "URL of an OpenTelemetry collector, http://HOST:4318, that receives a trace of each "
            "task; empty: none"
        ),
    ] = ""

    @property
    def timing(self) -> Timing:
        return Timing(
            opening_s=self.session_opening_s,
            beat_s=self.session_beat_s,
            silence_s=self.session_silence_s,
        )
