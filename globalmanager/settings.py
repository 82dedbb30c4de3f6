"""The GlobalManager's settings; read by `__main__`, handed out in slices by `app`."""

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
        Literal["token"], Setting("how a node proves who it is: a secret of its own")
    ] = "token"
    edge_token_file: Annotated[
        str, Setting("file of lines `<node> <sha256 hex of its token>`; re-read when it changes")
    ] = ""
    admissions_per_s: Annotated[
        float, Setting("edge connections admitted per second; beyond it they are told to retry")
    ] = 100.0
    qps: Annotated[float, Setting("requests per second to the Kubernetes API")] = 200.0
    burst: Annotated[int, Setting("requests to the Kubernetes API that may come at once")] = 400
    workers: Annotated[int, Setting("objects reconciled at the same time")] = 16
    stale_after_s: Annotated[
        float, Setting("not ready once a cache has not heard from the API for so many seconds")
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
    log_level: Annotated[LogLevel, Setting("least level that is logged")] = "info"
