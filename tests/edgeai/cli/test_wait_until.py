"""The `edgeai` command waits until nothing is missing, and says what was missing last."""

import pytest

from edgeai.cli.api import TimedOut, wait_until


def test_it_ends_once_nothing_is_missing() -> None:
    missing = ["two", "one", ""]
    wait_until("the start", lambda: missing.pop(0), timeout_s=60, poll_s=0)
    assert missing == []


def test_what_was_missing_last_is_told() -> None:
    with pytest.raises(TimedOut, match="the start did not happen within 0 s; last seen: one"):
        wait_until("the start", lambda: "one", timeout_s=0)
