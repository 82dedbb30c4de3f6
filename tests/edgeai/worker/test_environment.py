"""Environment variables into one struct, and errors that help."""

import pytest

from edgeai.errors import SettingsError
from edgeai.worker.environment import Address, from_environ

SECRET = "0123456789abcdef" * 4


def test_edge_worker_variables() -> None:
    environment = from_environ(
        {
            "BIG_MODEL_IP": "digits-cloud.default",
            "BIG_MODEL_PORT": "5000",
            "HEM_NAME": "IBT",
            "HEM_PARAMETERS": '[{"key":"threshold_img","value":"0.9"},{"key":"b","value":0.5}]',
            "LC_SERVER": f"http://10.0.0.7:9100/w/{SECRET}/",
            "MODEL_URL": "/home/data/models/m.npz",
            "NAMESPACE": "ns",
            "SERVICE_NAME": "digits",
            "WORKER_NAME": "digits-edge",
        }
    )
    assert environment.big_model == Address("digits-cloud.default", 5000)
    assert environment.hem_parameters == {"threshold_img": "0.9", "b": "0.5"}
    assert environment.lc_server is not None
    assert environment.lc_server.address == Address("10.0.0.7", 9100)
    assert environment.lc_server.path == f"/w/{SECRET}"
    assert environment.model_url == "/home/data/models/m.npz"
    assert environment.worker_name == "digits-edge"


def test_nothing_set_is_a_worker_without_reports_and_cloud() -> None:
    environment = from_environ({})
    assert environment.lc_server is None
    assert environment.big_model is None
    assert environment.big_model_bind == Address("0.0.0.0", 5000)


def test_pod_ip_is_where_the_big_model_listens() -> None:
    environment = from_environ({"BIG_MODEL_BIND_IP": "127.3.2.1", "BIG_MODEL_BIND_PORT": "5001"})
    assert environment.big_model_bind == Address("127.3.2.1", 5001)


@pytest.mark.parametrize("text", ["", "[]", "null", "  "])
def test_no_parameters(text: str) -> None:
    assert from_environ({"HEM_PARAMETERS": text}).hem_parameters == {}


def test_secret_is_not_shown() -> None:
    environment = from_environ({"LC_SERVER": f"http://h:9100/w/{SECRET}", "WORKER_NAME": "w"})
    assert SECRET not in repr(environment)
    assert SECRET not in str(environment.lc_server)


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("BIG_MODEL_PORT", "http", "TCP port from 1 to 65535"),
        ("BIG_MODEL_PORT", "0", "TCP port"),
        ("BIG_MODEL_PORT", "70000", "TCP port"),
        ("BIG_MODEL_BIND_PORT", "-1", "TCP port"),
        ("BIG_MODEL_IP", "http://cloud", "host name or an IP address alone"),
        ("HARD_EXAMPLES_MAX_BYTES", "64Mi", "bytes from 1 to"),
        ("HEM_PARAMETERS", "{", "expected a JSON list"),
        ("HEM_PARAMETERS", '[{"name":"a"}]', "expected a JSON list"),
        ("HEM_PARAMETERS", "5", "expected a JSON list"),
        ("HEM_PARAMETERS", '[{"key":"a","value":"1"},{"key":"a","value":"2"}]', "twice"),
        ("CLOUD_TIMEOUT_SECONDS", "0", "seconds from 0.001"),
        ("CLOUD_TIMEOUT_SECONDS", "nan", "seconds from"),
        ("REPORT_PERIOD_SECONDS", "soon", "seconds from 0.01"),
        ("LC_SERVER", f"https://h/w/{SECRET}", "expected http://HOST:PORT/w/SECRET"),
        ("LC_SERVER", f"http://h:port/w/{SECRET}", "malformed host or port"),
        ("LC_SERVER", f"http://h/w/{SECRET}\r\nX: y", "control character"),
        ("LC_SERVER", f"http:///w/{SECRET}", "expected http://HOST:PORT/w/SECRET"),
    ],
)
def test_error_names_the_variable_and_what_is_expected(
    variable: str, value: str, says: str
) -> None:
    complete = {"BIG_MODEL_IP": "cloud", "WORKER_NAME": "w"}
    with pytest.raises(SettingsError) as raised:
        from_environ(complete | {variable: value})
    assert variable in str(raised.value)
    assert says in str(raised.value)
    assert SECRET not in str(raised.value)


def test_reports_need_a_worker_name() -> None:
    with pytest.raises(SettingsError, match="WORKER_NAME"):
        from_environ({"LC_SERVER": f"http://h:9100/w/{SECRET}"})
