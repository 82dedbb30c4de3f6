"""The GlobalManager's settings. `__main__` reads them, `app` gives each part its slice."""

from typing import Annotated, Literal

from common.logs import LogLevel
from common.session_settings import SessionSettings
from common.settings import Setting


class Settings(SessionSettings, frozen=True, kw_only=True):
    """One field for each flag; see docs/configuration.md for all spellings."""

    kubeconfig: Annotated[
        str, Setting("path of a kubeconfig; empty: the pod's own ServiceAccount")
    ] = ""
    namespace: Annotated[str, Setting("watch this namespace only; empty: all")] = ""
    system_namespace: Annotated[
        str, Setting("namespace of the GlobalManager's own Secret and Lease")
    ] = "edgeai-system"
    groups: Annotated[
        tuple[str, ...], Setting("API groups to serve; the CRDs of each must be installed")
    ] = ("edgeai.io", "sedna.io")
    edge_address: Annotated[str, Setting("HOST:PORT where LocalControllers connect")] = (
        "0.0.0.0:9000"
    )
    http_address: Annotated[str, Setting("HOST:PORT of REST, health and metrics")] = (
        "127.0.0.1:9001"
    )
    edge_auth: Annotated[
        Literal["token", "serviceaccount", "mtls"],
        Setting(
            "how a node proves who it is: a secret of its own, its pod's projected token, or a "
            "client certificate"
        ),
    ] = "token"
    edge_token_file: Annotated[
        str, Setting("file of lines `<node> <sha256 hex of its token>`; re-read when it changes")
    ] = ""
    edge_service_account: Annotated[
        str, Setting("NAMESPACE/NAME of the LocalControllers' ServiceAccount; no other is let in")
    ] = "edgeai-system/localcontroller"
    edge_client_ca: Annotated[
        str, Setting("PEM file of the CAs of client certificates; re-read when it changes")
    ] = ""
    edge_tls_certificate: Annotated[
        str, Setting("PEM file of the edge port's certificate; re-read when it changes")
    ] = ""
    edge_tls_key: Annotated[str, Setting("PEM file of that certificate's key")] = ""
    edge_plaintext: Annotated[
        Literal["refuse", "allow"],
        Setting("allow: ws without TLS, on loopback or behind a proxy that ends TLS"),
    ] = "refuse"
    edge_review_s: Annotated[
        float, Setting("a live session's credential is looked at again after so many seconds")
    ] = 60.0
    admissions_per_s: Annotated[
        float, Setting("edge connections admitted per second; beyond it they are told to retry")
    ] = 100.0
    admissions_address_share: Annotated[
        float,
        Setting(
            "part of these for one IP address (IPv6: one /64), at least 1 per second; 1 where all "
            "edges come through one proxy or NAT"
        ),
    ] = 0.1
    qps: Annotated[
        float,
        Setting(
            "requests per second to the Kubernetes API; plans and reports have at least 40 % each "
            "of it, and what the other leaves"
        ),
    ] = 500.0
    burst: Annotated[
        int, Setting("requests to the Kubernetes API that may come at once after a quiet time")
    ] = 1000
    request_deadline_s: Annotated[
        float, Setting("a request to the Kubernetes API that takes so many seconds has failed")
    ] = 10.0
    watch_s: Annotated[
        float,
        Setting(
            "longest watch of the Kubernetes API, seconds; one that was lost in silence is given "
            "up after this and one request deadline, if no silence of the Leases told it before"
        ),
    ] = 80.0
    workers: Annotated[int, Setting("objects reconciled at the same time")] = 16
    stale_after_s: Annotated[
        float, Setting("not ready once a cache has lost contact with the API for so many seconds")
    ] = 60.0
    framework_images: Annotated[
        dict[str, str],
        Setting("image for workerSpec's frameworkType:frameworkVersion, e.g. tensorflow:1.18=…"),
    ] = {}
    storage_initializer_image: Annotated[
        str, Setting("image of the init container that fetches s3 and http models")
    ] = "kubeedge/sedna-storage-initializer:v0.3.0"
    worker_api_port: Annotated[
        int, Setting("port of the LocalController's worker API on each node")
    ] = 9100
    contact_grace_s: Annotated[
        float, Setting("seconds without a session after which a node is out of contact")
    ] = 40.0
    replica_name: Annotated[
        str,
        Setting(
            "name of this replica that it keeps when it is restarted and no other has, its pod's; "
            "then the next process leads at once where the last one did; empty: host and process"
        ),
    ] = ""
    lease_duration_s: Annotated[
        float, Setting("another replica takes over when it saw no renewal for so many seconds")
    ] = 15.0
    lease_renew_deadline_s: Annotated[
        float, Setting("the leader writes for so many seconds after its last renewal, and no more")
    ] = 10.0
    lease_retry_s: Annotated[
        float, Setting("seconds between two renewals of the Lease, or two looks at it")
    ] = 1.5
    log_level: Annotated[LogLevel, Setting("least level that is logged")] = "info"
