"""The GlobalManager's settings. `__main__` reads the settings. `app` gives each part the settings
that the part needs.
"""

from typing import Annotated, Literal

from common.logs import LogLevel
from common.node_paths import DEFAULT_PREFIXES
from common.session_settings import SessionSettings
from common.settings import Setting


class Settings(SessionSettings, frozen=True, kw_only=True):
    """One field for each flag. docs/configuration.md shows the flag, the environment variable and
    the file key of each field.
    """

    kubeconfig: Annotated[
        str, Setting("path of a kubeconfig; empty: the pod's own ServiceAccount")
    ] = ""
    namespace: Annotated[str, Setting("watch this namespace only; empty: all")] = ""
    system_namespace: Annotated[
        str, Setting("namespace of the GlobalManager's own Secret and Lease")
    ] = "edgeai-system"
    groups: Annotated[
        tuple[str, ...],
        Setting("API groups to serve, as far as they are installed: CRDs and rights"),
    ] = ("edgeai.io", "sedna.io", "kubeflow.org", "kai.alibabacloud.com")
    edge_address: Annotated[str, Setting("HOST:PORT where LocalControllers connect")] = (
        "0.0.0.0:9000"
    )
    edge_url: Annotated[
        str,
        Setting(
            "wss://HOST:PORT at which edges reach this replica alone, so that another replica with "
            "more sessions can send them here; empty: such edges dial their configured address "
            "again"
        ),
    ] = ""
    http_address: Annotated[str, Setting("HOST:PORT of REST, health and metrics")] = (
        "127.0.0.1:9001"
    )
    http_auth: Annotated[
        Literal["kubernetes", "none"],
        Setting(
            "how a caller of REST proves who it is and what it may read: by a token and the rights "
            "of the Kubernetes API; or not at all, which needs a loopback address"
        ),
    ] = "kubernetes"
    console: Annotated[
        Literal["on", "off"], Setting("whether the address of REST serves the web console, too")
    ] = "on"
    console_prometheus_url: Annotated[
        str,
        Setting(
            "URL of a Prometheus that scrapes this GlobalManager, http://HOST:PORT: the console "
            "asks it for the curve of a job from before a page was opened; needs --job-metrics; "
            "empty: none"
        ),
    ] = ""
    job_metrics: Annotated[
        int,
        Setting(
            "largest number of series with the metrics of jobs at /metrics, edgeai_job_metric; "
            "each namespace gets an equal part; 0: none"
        ),
    ] = 0
    console_token_header: Annotated[
        str,
        Setting(
            "header in which an authenticating proxy sends the caller's token of the Kubernetes "
            "API to the console, such as X-Forwarded-Access-Token; empty: none"
        ),
    ] = ""
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
        str,
        Setting("NAMESPACE/NAME of the LocalControllers' ServiceAccount; all others are refused"),
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
        float, Setting("seconds between two reviews of a live session's credential")
    ] = 60.0
    admissions_per_s: Annotated[
        float,
        Setting(
            "handshakes per second of strangers, and of nodes that connect again within a minute; "
            "further ones are told to retry. Other nodes come in as fast as the processor can"
        ),
    ] = 100.0
    admissions_address_share: Annotated[
        float,
        Setting(
            "share of these handshakes that one IP address (IPv6: one /64) may use, at least 1 per "
            "second; set it to 1 where all edges come through one proxy or NAT"
        ),
    ] = 0.1
    qps: Annotated[
        float,
        Setting(
            "requests per second to the Kubernetes API; plans and reports get at least 30 % each, "
            "and what the other does not use"
        ),
    ] = 500.0
    burst: Annotated[
        int, Setting("requests to the Kubernetes API that may be sent at once after a pause")
    ] = 1000
    plan_requests: Annotated[
        int,
        Setting(
            "requests of plans that the Kubernetes API works on at the same time while assignments "
            "change or reports wait, at least 1; otherwise it is 8 or this number. More make "
            "children sooner where the API server has processors to spare, and assignments later "
            "where it has not"
        ),
    ] = 1
    request_deadline_s: Annotated[
        float, Setting("seconds after which a request to the Kubernetes API has failed")
    ] = 10.0
    watch_s: Annotated[
        float,
        Setting(
            "longest watch of the Kubernetes API, seconds; a watch on a dead connection ends at "
            "the latest after this time and one request deadline"
        ),
    ] = 80.0
    workers: Annotated[int, Setting("objects reconciled at the same time")] = 16
    stale_after_s: Annotated[
        float, Setting("seconds without the Kubernetes API until /readyz answers: not ready")
    ] = 60.0
    framework_images: Annotated[
        dict[str, str],
        Setting("image of each frameworkType:frameworkVersion of workerSpec; tensorflow:1.18=…"),
    ] = {}
    storage_initializer_image: Annotated[
        str, Setting("image of the init container that fetches s3 and http models")
    ] = "kubeedge/sedna-storage-initializer:v0.3.0"
    pod_security_default: Annotated[
        Literal["privileged", "baseline", "restricted"],
        Setting(
            "Pod Security Standard of the workers in a namespace without the label "
            "pod-security.kubernetes.io/enforce"
        ),
    ] = "privileged"
    node_path_prefixes: Annotated[
        tuple[str, ...],
        Setting(
            "directories of a node below which Models, Datasets and scriptDirs may be; system "
            "directories, hidden ones and /home/USER only where a prefix names them; *: all"
        ),
    ] = DEFAULT_PREFIXES
    worker_api_port: Annotated[
        int, Setting("port of the LocalController's worker API on each node")
    ] = 9100
    cluster_domain: Annotated[
        str,
        Setting(
            "DNS domain of the cluster in the host names of TF_CONFIG, such as cluster.local; "
            "empty: the names end with .svc, and the relay takes cluster.local"
        ),
    ] = ""
    gang_scheduler_name: Annotated[
        str,
        Setting(
            "scheduler that starts all pods of a training job together: volcano, or the name of a "
            "scheduler with the coscheduling plugin, whose PodGroups the cluster must have; empty: "
            "none"
        ),
    ] = ""
    job_template_bytes: Annotated[
        int,
        Setting(
            "largest sum of the pod templates of one training job, bytes of JSON: replicas times "
            "the size of the template; a job with more gets no further pods"
        ),
    ] = 67108864
    contact_grace_s: Annotated[
        float, Setting("seconds without a session after which a node is out of contact")
    ] = 40.0
    replica_name: Annotated[
        str,
        Setting(
            "unique name of this replica that a restart keeps, such as its pod's name; a restarted "
            "leader then leads again at once; empty: made of host and process"
        ),
    ] = ""
    lease_duration_s: Annotated[
        float, Setting("seconds without a renewal of the Lease until another replica may lead")
    ] = 15.0
    lease_renew_deadline_s: Annotated[
        float, Setting("seconds after its last renewal until the leader stops writing")
    ] = 10.0
    lease_retry_s: Annotated[
        float, Setting("seconds between two renewals of the Lease, or between two reads of it")
    ] = 1.5
    log_level: Annotated[LogLevel, Setting("least level that is logged")] = "info"
