"""How a replica is told apart from the others, and lease times that cannot work."""

import pytest

from common.errors import SettingsError
from globalmanager.replica import identify, lease_timing
from globalmanager.settings import Settings


def test_times_that_would_let_two_lead_are_refused_with_their_flags() -> None:
    settings = Settings(lease_duration_s=10, lease_renew_deadline_s=15)
    with pytest.raises(SettingsError, match=r"--lease-duration-s.*renew deadline 15"):
        lease_timing(settings)


def test_a_named_replica_succeeds_its_own_past_only() -> None:
    before, after = identify("pod-1"), identify("pod-1")
    assert after.is_successor_of(str(before))
    assert not after.is_successor_of(str(after))
    assert not after.is_successor_of(str(identify("pod-2")))
    assert not after.is_successor_of("")


def test_without_a_name_nobody_is_anybodys_successor() -> None:
    """Two hosts, or two containers, may have the same host name."""
    assert not identify("").is_successor_of(str(identify("")))
