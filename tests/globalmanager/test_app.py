"""How app reads the settings that concern several parts."""

import pytest

from edgeai.errors import SettingsError
from globalmanager.app import client_settings
from globalmanager.core import lease_timing
from globalmanager.settings import Settings


def test_times_that_would_let_two_lead_are_refused_with_their_flags() -> None:
    settings = Settings(lease_duration_s=10, lease_renew_deadline_s=15)
    with pytest.raises(SettingsError, match=r"--lease-duration-s.*renew deadline 15"):
        lease_timing(settings)


@pytest.mark.parametrize(
    "wrong",
    [
        {"qps": 0.0},
        {"qps": float("nan")},
        {"qps": float("inf")},
        {"burst": 0},
        {"plan_requests": 0},
    ],
)
def test_bounds_of_requests_below_one_are_refused_by_their_flags(wrong: dict[str, float]) -> None:
    with pytest.raises(SettingsError, match="--qps, --burst, --plan-requests"):
        client_settings(Settings(**wrong))  # type: ignore[arg-type]
