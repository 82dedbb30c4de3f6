"""The settings of a LocalController: from flags, environment and configuration file.

`__main__` loads them through common.settings, and `app` passes each part the values that it needs.
`check` refuses values that the types allow but that cannot work.
"""

import ipaddress
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from common.logs import LogLevel
from common.node_paths import DEFAULT_PREFIXES
from common.session_settings import SessionSettings
from common.settings import Env, flag_error, split_address
from edgeai.addresses import is_loopback
from edgeai.ids import is_subdomain


class Settings(SessionSettings, frozen=True, kw_only=True):
    node_name: Annotated[str, Env("NODENAME")]
    """name of this Kubernetes Node"""
    global_manager: Annotated[str, Env("GM_ADDRESS")]
    """address of the GlobalManager: wss://HOST:PORT or HOST:PORT; ws:// with --edge-plaintext
    allow; several, with commas between them, where replicas have addresses of their own"""
    state_dir: Path = Path("/var/lib/edgeai")
    """directory of the ledger; survives restarts"""
    worker_address: str = "127.0.0.1:9100"
    """HOST:PORT where workers report"""
    status_address: str = "127.0.0.1:9101"
    """HOST:PORT of the read-only REST API, on loopback only"""
    token_file: Path | None = None
    """file with the bearer token for the GlobalManager"""
    ca_file: Path | None = None
    """PEM file of the CA of a wss:// GlobalManager; default: the system's"""
    client_certificate: Path | None = None
    """PEM file of the client certificate for a wss:// GlobalManager"""
    client_key: Path | None = None
    """PEM file of the client certificate's key"""
    edge_plaintext: Literal["refuse", "allow"] = "refuse"
    """allow: ws:// without TLS, on loopback or up to a proxy that speaks TLS"""
    log_level: LogLevel = "info"
    """least severe level that is logged"""
    pods_api: str = ""
    """URL of the cluster API or KubeEdge's MetaServer to watch pods, with rights to get, list and
    watch them; empty: off"""
    pods_token_file: Path | None = None
    """file with the bearer token of pods-api"""
    pods_ca_file: Path | None = None
    """PEM file of the CA of pods-api"""
    data_root: Annotated[Path | None, Env("ROOTFS_MOUNT_DIR")] = None
    """where the node's root, or the part of it that holds Datasets, is mounted; default: paths are
    this process's own"""
    node_path_prefixes: tuple[str, ...] = DEFAULT_PREFIXES
    """directories of a node below which Datasets may be; system directories, hidden ones and
    /home/USER only where a prefix names them; *: all"""
    dataset_networks: tuple[str, ...] = ()
    """networks such as 127.0.0.0/8 from which http Datasets and Models may come although their
    addresses are refused otherwise: loopback, link-local, metadata of a cloud"""
    credentials_dir: Path | None = None
    """directory with keys of s3 Datasets and Models: NAMESPACE/CREDENTIALNAME/ACCESS_KEY_ID, …, or
    NAMESPACE.CREDENTIALNAME.ACCESS_KEY_ID, …"""
    dataset_poll_s: float = 60.0
    """period of the checks of each Dataset for changes, seconds"""
    model_max_bytes: int = 8 * 1024**3
    """disk space for the content of Models, bytes; one namespace gets a half"""
    model_bytes_per_s: float = 0.0
    """limit of the downloads of Models, bytes per second; 0: none"""
    worker_silence_factor: float = 3.0
    """number of missed heartbeat intervals after which a worker counts as lost"""
    ledger_max_bytes: int = 64 * 1024 * 1024
    """largest size of the ledger file, bytes"""
    ledger_reserve_bytes: int = 1024 * 1024
    """disk space kept aside so that final states fit on a full disk, bytes"""
    reconnect_min_s: float = 1.0
    """cap of the first reconnect delay, seconds"""
    reconnect_max_s: float = 60.0
    """cap of every reconnect delay, seconds"""
    credential_check_s: float = 30.0
    """period of the checks of token and client certificate, seconds; a new session uses replaced
    ones within one more period"""
    credential_lost_s: float = 300.0
    """the process ends when a credential file has been missing, or has the token of another pod, or
    an expired one that is rejected, for this time, and the GlobalManager is in reach, seconds; a
    restarted container then mounts its files again"""

    @property
    def global_manager_urls(self) -> tuple[str, ...]:
        addresses = (address.strip() for address in self.global_manager.split(","))
        return tuple(_with_scheme(address) for address in addresses)


MIN_LEDGER_BYTES = 1024 * 1024
_POSITIVE = (
    "dataset_poll_s",
    "worker_silence_factor",
    "session_opening_s",
    "session_beat_s",
    "session_silence_s",
    "reconnect_min_s",
    "reconnect_max_s",
    "credential_check_s",
    "credential_lost_s",
)


def check(settings: Settings) -> None:
    """Raises: SettingsError, which names the first setting that cannot work."""
    if not is_subdomain(settings.node_name):
        raise flag_error("node_name", f"{settings.node_name!r} is not an RFC 1123 name of a Node")
    urls = settings.global_manager_urls
    for url in urls:
        _check_url("global_manager", url, ("ws", "wss"))
    if len({urlsplit(url).scheme for url in urls}) > 1:
        raise flag_error("global_manager", "mixes ws:// and wss://; use wss:// for all")
    if settings.pods_api:
        _check_url("pods_api", settings.pods_api, ("http", "https"))
    split_address(settings.worker_address, "flag --worker-address")
    host, _ = split_address(settings.status_address, "flag --status-address")
    if not is_loopback(host):
        raise flag_error(
            "status_address", f"{host!r} is not a loopback address; use 127.0.0.1 or ::1"
        )
    _check_numbers(settings)
    _check_networks(settings)
    _check_tls(settings)


def _check_tls(settings: Settings) -> None:
    if (settings.client_certificate is None) != (settings.client_key is None):
        raise flag_error("client_certificate", "and --client-key must be given together")
    if urlsplit(settings.global_manager_urls[0]).scheme == "wss":
        return
    if settings.edge_plaintext == "refuse":
        raise flag_error(
            "global_manager",
            "ws:// would carry the credential in clear; use wss://HOST:PORT, or say "
            "--edge-plaintext allow",
        )
    if settings.client_certificate is not None:
        raise flag_error("client_certificate", "has no effect with ws://; use wss://HOST:PORT")


def _check_numbers(settings: Settings) -> None:
    for name in _POSITIVE:
        value = getattr(settings, name)
        if not 0 < value < float("inf"):
            raise flag_error(name, f"{value} must be positive and finite")
    if settings.session_silence_s <= settings.session_beat_s:
        raise flag_error("session_silence_s", "must be longer than --session-beat-s")
    if settings.reconnect_max_s < settings.reconnect_min_s:
        raise flag_error("reconnect_max_s", "must not be below --reconnect-min-s")
    if settings.ledger_max_bytes < MIN_LEDGER_BYTES:
        raise flag_error("ledger_max_bytes", f"must be at least {MIN_LEDGER_BYTES}")
    if settings.model_max_bytes < 0:
        raise flag_error("model_max_bytes", "must not be negative")
    if not 0 <= settings.model_bytes_per_s < float("inf"):
        raise flag_error("model_bytes_per_s", "must not be negative, and finite")
    if settings.ledger_reserve_bytes < 0:
        raise flag_error("ledger_reserve_bytes", "must not be negative")


def _check_networks(settings: Settings) -> None:
    for text in settings.dataset_networks:
        try:
            ipaddress.ip_network(text)
        except ValueError as error:
            raise flag_error("dataset_networks", f"{error}; expected e.g. 10.0.0.0/8") from error


def _with_scheme(address: str) -> str:
    return address if "://" in address else f"wss://{address}"


def _check_url(name: str, url: str, schemes: tuple[str, ...]) -> None:
    expected = " or ".join(f"{scheme}://HOST:PORT" for scheme in schemes)
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises ValueError for a wrong port
    except ValueError as error:
        raise flag_error(name, f"{url!r} is no URL: {error}; expected {expected}") from error
    if parts.scheme not in schemes or not parts.hostname:
        raise flag_error(name, f"{url!r} is no {expected}")
    if parts.username or parts.password or parts.fragment:
        raise flag_error(name, "must carry neither credentials nor a fragment")
