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
from common.settings import Setting, is_loopback, split_address
from edgeai.errors import SettingsError
from edgeai.ids import is_subdomain


class Settings(SessionSettings, frozen=True, kw_only=True):
    node_name: Annotated[str, Setting("name of this Kubernetes Node", env="NODENAME")]
    global_manager: Annotated[
        str,
        Setting(
            "address of the GlobalManager: wss://HOST:PORT or HOST:PORT; ws:// with "
            "--edge-plaintext allow; several, with commas between them, where replicas have "
            "addresses of their own",
            env="GM_ADDRESS",
        ),
    ]
    state_dir: Annotated[Path, Setting("directory of the ledger; survives restarts")] = Path(
        "/var/lib/edgeai"
    )
    worker_address: Annotated[str, Setting("HOST:PORT where workers report")] = "127.0.0.1:9100"
    status_address: Annotated[
        str, Setting("HOST:PORT of the read-only REST API, on loopback only")
    ] = "127.0.0.1:9101"
    token_file: Annotated[
        Path | None, Setting("file with the bearer token for the GlobalManager")
    ] = None
    ca_file: Annotated[
        Path | None, Setting("PEM file of the CA of a wss:// GlobalManager; default: the system's")
    ] = None
    client_certificate: Annotated[
        Path | None, Setting("PEM file of the client certificate for a wss:// GlobalManager")
    ] = None
    client_key: Annotated[Path | None, Setting("PEM file of the client certificate's key")] = None
    edge_plaintext: Annotated[
        Literal["refuse", "allow"],
        Setting("allow: ws:// without TLS, on loopback or up to a proxy that speaks TLS"),
    ] = "refuse"
    log_level: Annotated[LogLevel, Setting("least severe level that is logged")] = "info"
    pods_api: Annotated[
        str,
        Setting(
            "URL of the cluster API or KubeEdge's MetaServer to watch pods, with rights to get, "
            "list and watch them; empty: off"
        ),
    ] = ""
    pods_token_file: Annotated[Path | None, Setting("file with the bearer token of pods-api")] = (
        None
    )
    pods_ca_file: Annotated[Path | None, Setting("PEM file of the CA of pods-api")] = None
    data_root: Annotated[
        Path | None,
        Setting(
            "where the node's root, or the part of it that holds Datasets, is mounted; default: "
            "paths are this process's own",
            env="ROOTFS_MOUNT_DIR",
        ),
    ] = None
    node_path_prefixes: Annotated[
        tuple[str, ...],
        Setting(
            "directories of a node below which Datasets may be; system "
            "directories, hidden ones and /home/USER only where a prefix names them; *: all"
        ),
    ] = DEFAULT_PREFIXES
    dataset_networks: Annotated[
        tuple[str, ...],
        Setting(
            "networks such as 127.0.0.0/8 from which http Datasets may come although their "
            "addresses are refused otherwise: loopback, link-local, metadata of a cloud"
        ),
    ] = ()
    credentials_dir: Annotated[
        Path | None,
        Setting(
            "directory with keys of s3 Datasets: NAMESPACE/CREDENTIALNAME/ACCESS_KEY_ID, …, or "
            "NAMESPACE.CREDENTIALNAME.ACCESS_KEY_ID, …"
        ),
    ] = None
    dataset_poll_s: Annotated[
        float, Setting("period of the checks of each Dataset for changes, seconds")
    ] = 60.0
    worker_silence_factor: Annotated[
        float,
        Setting("number of missed heartbeat intervals after which a worker counts as lost"),
    ] = 3.0
    ledger_max_bytes: Annotated[int, Setting("largest size of the ledger file, bytes")] = (
        64 * 1024 * 1024
    )
    ledger_reserve_bytes: Annotated[
        int, Setting("disk space kept aside so that final states fit on a full disk, bytes")
    ] = 1024 * 1024
    reconnect_min_s: Annotated[float, Setting("cap of the first reconnect delay, seconds")] = 1.0
    reconnect_max_s: Annotated[float, Setting("cap of every reconnect delay, seconds")] = 60.0
    credential_check_s: Annotated[
        float,
        Setting(
            "period of the checks of token and client certificate, seconds; a new session uses "
            "replaced ones within one more period"
        ),
    ] = 30.0
    credential_lost_s: Annotated[
        float,
        Setting(
            "the process ends when a credential file has been missing, or has the token of another "
            "pod, or an expired one that is rejected, for this time, and the GlobalManager is in "
            "reach, seconds; a restarted container then mounts its files again"
        ),
    ] = 300.0

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
        raise _settings_error(
            "node_name", f"{settings.node_name!r} is not an RFC 1123 name of a Node"
        )
    urls = settings.global_manager_urls
    for url in urls:
        _check_url("global_manager", url, ("ws", "wss"))
    if len({urlsplit(url).scheme for url in urls}) > 1:
        raise _settings_error("global_manager", "mixes ws:// and wss://; use wss:// for all")
    if settings.pods_api:
        _check_url("pods_api", settings.pods_api, ("http", "https"))
    split_address(settings.worker_address, "flag --worker-address")
    host, _ = split_address(settings.status_address, "flag --status-address")
    if not is_loopback(host):
        raise _settings_error(
            "status_address", f"{host!r} is not a loopback address; use 127.0.0.1 or ::1"
        )
    _check_numbers(settings)
    _check_networks(settings)
    _check_tls(settings)


def _check_tls(settings: Settings) -> None:
    if (settings.client_certificate is None) != (settings.client_key is None):
        raise _settings_error("client_certificate", "and --client-key must be given together")
    if urlsplit(settings.global_manager_urls[0]).scheme == "wss":
        return
    if settings.edge_plaintext == "refuse":
        raise _settings_error(
            "global_manager",
            "ws:// would carry the credential in clear; use wss://HOST:PORT, or say "
            "--edge-plaintext allow",
        )
    if settings.client_certificate is not None:
        raise _settings_error("client_certificate", "has no effect with ws://; use wss://HOST:PORT")


def _check_numbers(settings: Settings) -> None:
    for name in _POSITIVE:
        value = getattr(settings, name)
        if not 0 < value < float("inf"):
            raise _settings_error(name, f"{value} must be positive and finite")
    if settings.session_silence_s <= settings.session_beat_s:
        raise _settings_error("session_silence_s", "must be longer than --session-beat-s")
    if settings.reconnect_max_s < settings.reconnect_min_s:
        raise _settings_error("reconnect_max_s", "must not be below --reconnect-min-s")
    if settings.ledger_max_bytes < MIN_LEDGER_BYTES:
        raise _settings_error("ledger_max_bytes", f"must be at least {MIN_LEDGER_BYTES}")
    if settings.ledger_reserve_bytes < 0:
        raise _settings_error("ledger_reserve_bytes", "must not be negative")


def _check_networks(settings: Settings) -> None:
    for text in settings.dataset_networks:
        try:
            ipaddress.ip_network(text)
        except ValueError as error:
            raise _settings_error(
                "dataset_networks", f"{error}; expected e.g. 10.0.0.0/8"
            ) from error


def _with_scheme(address: str) -> str:
    return address if "://" in address else f"wss://{address}"


def _check_url(name: str, url: str, schemes: tuple[str, ...]) -> None:
    expected = " or ".join(f"{scheme}://HOST:PORT" for scheme in schemes)
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises ValueError for a wrong port
    except ValueError as error:
        raise _settings_error(name, f"{url!r} is no URL: {error}; expected {expected}") from error
    if parts.scheme not in schemes or not parts.hostname:
        raise _settings_error(name, f"{url!r} is no {expected}")
    if parts.username or parts.password or parts.fragment:
        raise _settings_error(name, "must carry neither credentials nor a fragment")


def _settings_error(name: str, problem: str) -> SettingsError:
    return SettingsError(f"flag --{name.replace('_', '-')}", problem)
