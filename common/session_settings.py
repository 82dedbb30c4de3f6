"""The settings that GlobalManager and LocalController both have: of a session, and of traces."""

import msgspec

from common.session import Timing


class SessionSettings(msgspec.Struct, frozen=True, kw_only=True):
    session_opening_s: float = 10.0
    """longest handshake of a session, seconds"""
    session_beat_s: float = 15.0
    """longest pause between two frames to the other side, seconds"""
    session_silence_s: float = 40.0
    """time without a frame after which the other side counts as gone, seconds"""

    traces_endpoint: str = ""
    """URL of an OpenTelemetry collector, http://HOST:4318, that receives a trace of each task;
    empty: none"""

    @property
    def timing(self) -> Timing:
        return Timing(
            opening_s=self.session_opening_s,
            beat_s=self.session_beat_s,
            silence_s=self.session_silence_s,
        )
