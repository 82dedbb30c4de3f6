"""Clocks of tests."""

from datetime import UTC, datetime, timedelta

from common import clock


class Clock(clock.Clock):
    """Seconds that pass only when a test adds to `now_s`."""

    def __init__(self, now_s: float = 1000.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s

    def elapsed(self) -> float:
        return self.now_s

    def utcnow(self) -> datetime:
        return datetime.fromtimestamp(self.now_s, UTC)

    def processor(self) -> float:
        return 0.0


class AheadClock(clock.Clock):
    """Goes as the system's clock does, `ahead_s` later."""

    def __init__(self, ahead_s: float = 0.0) -> None:
        self.ahead_s = ahead_s

    def elapsed(self) -> float:
        return super().elapsed() + self.ahead_s

    def utcnow(self) -> datetime:
        return super().utcnow() + timedelta(seconds=self.ahead_s)
