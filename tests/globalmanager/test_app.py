"""How app reads the settings that concern several parts."""

import pytest

from common.errors import SettingsError
from globalmanager.app import lease_timing
from globalmanager.settings import Settings


def test_times_that_would_let_two_lead_are_refused_with_their_flags() -> None:
    settings = Settings(lease_duration_s=10, lease_renew_deadline_s=15)
    with pytest.raises(SettingsError, match=r"--lease-duration-s.*renew deadline 15"):
        lease_timing(settings)
