"""What the variables of a federation's worker mean, and what each wrong one is told."""

import pytest

from common.errors import SettingsError
from workersdk.environment import Address
from workersdk.federated.environment import from_environ, require_participant


def test_a_trainers_variables() -> None:
    environment = from_environ(
        {
            "AGG_IP": "digits-aggregation.default",
            "JOB_SECRET": "of the job",
            "LC_SERVER": "http://10.0.0.7:9100/w/of-the-worker",
            "WORKER_NAME": "digits-train-0",
            "REPORT_PERIOD_SECONDS": "5",
        }
    )
    aggregator = Address("digits-aggregation.default", 7363)
    assert require_participant(environment) == (aggregator, "digits-train-0")
    assert environment.secret.value == "of the job"
    assert environment.report_period_s == 5.0
    assert "of the job" not in repr(environment)
    assert "of-the-worker" not in repr(environment)


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("AGG_IP", "http://h", "expected a host name or an IP address alone"),
        ("AGG_PORT", "http", "expected a TCP port from 1 to 65535"),
        ("PARTICIPANTS_COUNT", "0", "expected a number of 1 or more"),
        ("HEARTBEAT_SECONDS", "-1", "expected seconds from 0 to 86400"),
    ],
)
def test_a_wrong_variable_is_named(variable: str, value: str, says: str) -> None:
    with pytest.raises(SettingsError, match=f"environment variable {variable}: .*{says}"):
        from_environ({"AGG_IP": "h", variable: value})
