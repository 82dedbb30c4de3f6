"""What the variables of a federation's worker mean, and what each wrong one is told."""

import contextlib
import socket
from pathlib import Path

import pytest

from edgeai.errors import SettingsError
from edgeai.worker.environment import Address
from edgeai.worker.federated.environment import from_environ, require_participant
from edgeai.worker.federated.server import AggregationServer


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


def test_the_aggregator_listens_on_the_pods_address_alone(tmp_path: Path) -> None:
    given = {"AGG_BIND_IP": "127.9.8.7", "AGG_BIND_PORT": "0", "JOB_SECRET": "of the job"}
    environment = from_environ({**given, "FEDERATION_STATE_DIR": str(tmp_path)})
    aggregator = AggregationServer(environment=environment)
    with contextlib.closing(socket.create_connection(aggregator.address)) as connection:
        assert connection.getpeername() == ("127.9.8.7", aggregator.address.port)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", aggregator.address.port))
    aggregator.stop()
    aggregator.serve()  # which closes what it listens on


def test_an_address_in_use_is_an_error_that_names_the_variables(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        given = {"AGG_BIND_IP": "127.0.0.1", "AGG_BIND_PORT": str(taken.getsockname()[1])}
        environment = from_environ({**given, "FEDERATION_STATE_DIR": str(tmp_path)})
        with pytest.raises(SettingsError, match=r"AGG_BIND_IP, AGG_BIND_PORT.*in use"):
            AggregationServer(environment=environment)


def test_nobody_else_can_join_a_federation_without_a_secret() -> None:
    with pytest.raises(SettingsError, match=r"JOB_SECRET.*listen on 0\.0\.0\.0.*AGG_BIND_IP"):
        AggregationServer(environment=from_environ({}))
