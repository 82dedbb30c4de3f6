"""The variables that the GlobalManager gives to a worker, parsed once into one frozen struct.

Only the constructors of the worker classes, such as JointInference, read os.environ. The variables
have Sedna's names; those that end in _SECONDS exist only in edgeai, and are optional.

The secret in the path of LC_SERVER appears neither in the struct's repr nor in an error.
"""

import enum
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from edgeai.errors import SettingsError


class Address(NamedTuple):
    host: str
    port: int


class LCServer(msgspec.Struct, frozen=True):
    """Base URL of the worker API on this node, parsed. `path` holds the worker's secret."""

    address: Address
    path: str

    def __repr__(self) -> str:
        return f"LCServer({self.address.host}:{self.address.port}/***)"


class Transport(enum.StrEnum):
    AUTO = "auto"  # directly where the peer's address answers from the node, else by the relay
    DIRECT = "direct"
    RELAY = "relay"  # through the LocalController of the node


class ReportEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a worker's reports, and of its way to the cloud."""

    worker_name: str = ""
    """WORKER_NAME"""
    lc_server: LCServer | None = None
    """LC_SERVER; None: the worker sends no reports"""
    report_period_s: float = 1.0
    """REPORT_PERIOD_SECONDS: least time between two reports while the state changes"""
    heartbeat_s: float = 10.0
    """HEARTBEAT_SECONDS: most time between two reports if nothing changes; 0: no heartbeats"""
    transport: Transport = Transport.AUTO
    """TRANSPORT: how this worker reaches its peer in the cloud"""


class WorkerEnvironment(ReportEnvironment, frozen=True, kw_only=True):
    """Settings of a worker. Empty text or None: the variable is not set."""

    model_url: str = ""
    """MODEL_URL, given to Estimator.load()"""
    hot_model: str = ""
    """HOT_MODEL, the name of the Model to load hot; "": none"""
    model_poll_s: float = 5.0
    """MODEL_POLL_PERIOD_SECONDS: from one question for a new version to the next"""
    model_dir: str = ""
    """MODEL_DIR, where the content of a hot model goes; "": a directory for temporary files"""
    big_model: Address | None = None
    """BIG_MODEL_IP and BIG_MODEL_PORT: where the edge finds the cloud worker"""
    big_model_bind: Address = Address("0.0.0.0", 5000)
    """BIG_MODEL_BIND_IP and BIG_MODEL_BIND_PORT: where the cloud worker listens"""
    hard_examples: Path | None = None
    """HARD_EXAMPLES_PATH: the file where the cloud worker keeps what edges send; None: nowhere"""
    hard_examples_max_bytes: int = 64 * 1024**2
    """HARD_EXAMPLES_MAX_BYTES: bound of this file"""
    hem_name: str = ""
    """HEM_NAME, one of edgeai.worker.hard_example_mining.ALGORITHMS"""
    hem_parameters: dict[str, str] = {}
    """HEM_PARAMETERS, JSON list of {"key", "value"}"""
    cloud_timeout_s: float = 2.0
    """CLOUD_TIMEOUT_SECONDS: how long one inference() waits for the cloud, in all its requests"""


def from_environ(environ: Mapping[str, str]) -> WorkerEnvironment:
    """Raises: SettingsError that names the variable, what is wrong and what to do"""
    if environ.get("HOT_MODEL") and not environ.get("LC_SERVER"):
        raise wrong("LC_SERVER", "is not set although HOT_MODEL is; set both")
    bind_host = environ.get("BIG_MODEL_BIND_IP") or WorkerEnvironment().big_model_bind.host
    return WorkerEnvironment(
        model_url=environ.get("MODEL_URL", ""),
        hot_model=environ.get("HOT_MODEL", ""),
        model_poll_s=seconds(environ, "MODEL_POLL_PERIOD_SECONDS", 5.0, least=0.01),
        model_dir=environ.get("MODEL_DIR", ""),
        big_model=peer(environ, "BIG_MODEL_IP", "BIG_MODEL_PORT", 5000),
        big_model_bind=Address(bind_host, port(environ, "BIG_MODEL_BIND_PORT", 5000, least=0)),
        hard_examples=Path(path) if (path := environ.get("HARD_EXAMPLES_PATH")) else None,
        hard_examples_max_bytes=whole(
            environ, "HARD_EXAMPLES_MAX_BYTES", 64 * 1024**2, 1, 2**63, "bytes"
        ),
        hem_name=environ.get("HEM_NAME", ""),
        hem_parameters=hem_parameters(environ),
        cloud_timeout_s=seconds(environ, "CLOUD_TIMEOUT_SECONDS", 2.0, least=0.001),
        **report_settings(environ),
    )


def report_settings(environ: Mapping[str, str]) -> dict[str, Any]:
    """The fields of ReportEnvironment. Raises: SettingsError"""
    server = lc_server(environ)
    return {
        "worker_name": worker_name(environ),
        "lc_server": server,
        "transport": transport(environ, has_proxy=server is not None),
        "report_period_s": seconds(environ, "REPORT_PERIOD_SECONDS", 1.0, least=0.01),
        "heartbeat_s": seconds(environ, "HEARTBEAT_SECONDS", 10.0, least=0.0),
    }


def transport(environ: Mapping[str, str], *, has_proxy: bool) -> Transport:
    text = environ.get("TRANSPORT", "") or Transport.AUTO
    try:
        choice = Transport(text)
    except ValueError:
        raise wrong("TRANSPORT", f"is {text!r}, expected auto, direct or relay") from None
    if choice is Transport.RELAY and not has_proxy:
        raise wrong(
            "TRANSPORT",
            "is relay, but LC_SERVER is not set; set LC_SERVER, whose LocalController is the "
            "proxy, or TRANSPORT to direct",
        )
    return choice


def worker_name(environ: Mapping[str, str]) -> str:
    name = environ.get("WORKER_NAME", "")
    if environ.get("LC_SERVER") and not name:
        raise wrong(
            "WORKER_NAME",
            "is not set although LC_SERVER is; set it to the name of this worker, or unset "
            "LC_SERVER to run without reports",
        )
    return name


def peer(
    environ: Mapping[str, str], host_variable: str, port_variable: str, default_port: int
) -> Address | None:
    """The address of another worker; None: the variable is not set."""
    host = environ.get(host_variable, "")
    if not host:
        return None
    if any(character.isspace() or character in "/@?#" for character in host):
        raise wrong(host_variable, f"is {host!r}, expected a host name or an IP address alone")
    return Address(host, port(environ, port_variable, default_port))


def lc_server(environ: Mapping[str, str]) -> LCServer | None:
    url = environ.get("LC_SERVER", "")
    if not url:
        return None
    expected = "expected http://HOST:PORT/w/SECRET, as the GlobalManager sets it"
    if any(character.isspace() or not character.isprintable() for character in url):
        raise wrong("LC_SERVER", f"holds a space or a control character, {expected}")
    try:
        parts = urlsplit(url)
        address = Address(parts.hostname or "", parts.port or 80)
    except ValueError:
        raise wrong("LC_SERVER", f"has a malformed host or port, {expected}") from None
    if parts.scheme != "http" or not address.host:
        raise wrong("LC_SERVER", f"has the scheme {parts.scheme!r}, {expected}")
    return LCServer(address, parts.path.rstrip("/"))


def hem_parameters(environ: Mapping[str, str]) -> dict[str, str]:
    text = environ.get("HEM_PARAMETERS", "")
    if not text.strip():
        return {}
    expected = 'expected a JSON list such as [{"key": "threshold_img", "value": "0.9"}]'
    try:
        pairs = json.loads(text)
        parameters = {str(pair["key"]): parameter_text(pair["value"]) for pair in pairs or ()}
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise wrong("HEM_PARAMETERS", f"cannot be read ({error}), {expected}") from error
    if len(parameters) != len(pairs or ()):
        raise wrong("HEM_PARAMETERS", f"names a parameter twice: {text}")
    return parameters


def parameter_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def port(environ: Mapping[str, str], variable: str, default: int, *, least: int = 1) -> int:
    """A TCP port. With `least` 0 the port may be 0, which means any free port to listen on."""
    return whole(environ, variable, default, least, 65535, "a TCP port")


def whole(
    environ: Mapping[str, str], variable: str, default: int, least: int, most: int, noun: str
) -> int:
    text = environ.get(variable, "") or str(default)
    if not text.isascii() or not text.isdigit() or not least <= int(text[:20]) <= most:
        raise wrong(variable, f"is {text!r}, expected {noun} from {least} to {most}")
    return int(text)


def seconds(environ: Mapping[str, str], variable: str, default: float, *, least: float) -> float:
    text = environ.get(variable, "") or str(default)
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not least <= value <= 86400:
        raise wrong(variable, f"is {text!r}, expected seconds from {least:g} to 86400")
    return value


def wrong(variable: str, problem: str) -> SettingsError:
    return SettingsError(f"environment variable {variable}", problem)
