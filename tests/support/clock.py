"""The clock of a test."""


class Clock:
    """Seconds that pass only when a test adds to `now_s`."""

    def __init__(self, now_s: float = 1000.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s
