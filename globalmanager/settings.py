"""The GlobalManager's settings. `__main__` reads them, and `app` gives each part its own."""

from typing import Literal

from common.logs import LogLevel
from common.node_paths import DEFAULT_PREFIXES
from common.session_settings import SessionSettings


class Settings(SessionSettings, frozen=True, kw_only=True):
    """One field for each flag. docs/configuration.md shows the flag, the environment variable and
    the file key of each field.
    """

    kubeconfig: str = ""
    """path of a kubeconfig; empty: the pod's own ServiceAccount"""
    namespace: str = ""
    """watch this namespace only; empty: all"""
    system_namespace: str = "edgeai-system"
    """namespace of the GlobalManager's own Secret and Lease"""
    groups: tuple[str, ...] = ("edgeai.io", "sedna.io", "kubeflow.org", "kai.alibabacloud.com")
    """API groups to serve, as far as they are installed: CRDs and rights"""
    edge_address: str = "0.0.0.0:9000"
    """HOST:PORT where LocalControllers connect"""
    edge_url: str = ""
    """wss://HOST:PORT at which edges reach this replica alone, so that another replica with more
    sessions can send them here; empty: such edges dial their configured address again"""
    http_address: str = "127.0.0.1:9001"
    """HOST:PORT of REST, health and metrics"""
    http_auth: Literal["kubernetes", "none"] = "kubernetes"
    """how a caller of REST proves who it is and what it may read: by a token and the rights of the
    Kubernetes API; or not at all, which needs a loopback address"""
    console: Literal["on", "off"] = "on"
    """whether the address of REST serves the web console, too"""
    console_prometheus_url: str = ""
    """URL of a Prometheus that scrapes this GlobalManager, http://HOST:PORT: the console asks it
    for the curve of a job from before a page was opened; needs --job-metrics; empty: none"""
    job_metrics: int = 0
    """largest number of series with the metrics of jobs at /metrics, edgeai_job_metric; each
    namespace gets an equal part; 0: none"""
    console_token_header: str = ""
    """header in which an authenticating proxy sends the caller's token of the Kubernetes API to the
    console, such as X-Forwarded-Access-Token; empty: none"""
    edge_auth: Literal["token", "serviceaccount", "mtls"] = "token"
    """how a node proves who it is: a secret of its own, its pod's projected token, or a client
    certificate"""
    edge_token_file: str = ""
    """file of lines `<node> <sha256 hex of its token>`; re-read when it changes"""
    edge_service_account: str = "edgeai-system/localcontroller"
    """NAMESPACE/NAME of the LocalControllers' ServiceAccount; all others are refused"""
    edge_client_ca: str = ""
    """PEM file of the CAs of client certificates; re-read when it changes"""
    edge_tls_certificate: str = ""
    """PEM file of the edge port's certificate; re-read when it changes"""
    edge_tls_key: str = ""
    """PEM file of that certificate's key"""
    edge_plaintext: Literal["refuse", "allow"] = "refuse"
    """allow: ws without TLS, on loopback or behind a proxy that ends TLS"""
    edge_review_s: float = 60.0
    """seconds between two reviews of a live session's credential"""
    admissions_per_s: float = 100.0
    """handshakes per second of strangers, and of nodes that connect again within a minute; further
    ones are told to retry. Other nodes come in as fast as the processor can"""
    admissions_address_share: float = 0.1
    """share of these handshakes that one IP address (IPv6: one /64) may use, at least 1 per second;
    set it to 1 where all edges come through one proxy or NAT"""
    qps: float = 500.0
    """requests per second to the Kubernetes API; plans and reports get at least 30 % each, and what
    the other does not use"""
    burst: int = 1000
    """requests to the Kubernetes API that may be sent at once after a pause"""
    plan_requests: int = 1
    """requests of plans that the Kubernetes API works on at the same time while assignments change
    or reports wait, at least 1; otherwise it is 8 or this number. More make children sooner where
    the API server has processors to spare, and assignments later where it has not"""
    request_deadline_s: float = 10.0
    """seconds after which a request to the Kubernetes API has failed"""
    watch_s: float = 80.0
    """longest watch of the Kubernetes API, seconds; a watch on a dead connection ends at the latest
    after this time and one request deadline"""
    workers: int = 16
    """objects reconciled at the same time"""
    stale_after_s: float = 60.0
    """seconds without the Kubernetes API until /readyz answers: not ready"""
    framework_images: dict[str, str] = {}
    """image of each frameworkType:frameworkVersion of workerSpec; tensorflow:1.18=…"""
    storage_initializer_image: str = "kubeedge/sedna-storage-initializer:v0.3.0"
    """image of the init container that fetches s3 and http models"""
    pod_security_default: Literal["privileged", "baseline", "restricted"] = "privileged"
    """Pod Security Standard of the workers in a namespace without the label
    pod-security.kubernetes.io/enforce"""
    node_path_prefixes: tuple[str, ...] = DEFAULT_PREFIXES
    """directories of a node below which Models, Datasets and scriptDirs may be; system directories,
    hidden ones and /home/USER only where a prefix names them; *: all"""
    worker_api_port: int = 9100
    """port of the LocalController's worker API on each node"""
    cluster_domain: str = ""
    """DNS domain of the cluster in the host names of TF_CONFIG, such as cluster.local; empty: the
    names end with .svc, and the relay takes cluster.local"""
    gang_scheduler_name: str = ""
    """scheduler that starts all pods of a training job together: volcano, or the name of a
    scheduler with the coscheduling plugin, whose PodGroups the cluster must have; empty: none"""
    job_template_bytes: int = 67108864
    """largest sum of the pod templates of one training job, bytes of JSON: replicas times the size
    of the template; a job with more gets no further pods"""
    contact_grace_s: float = 40.0
    """seconds without a session after which a node is out of contact"""
    replica_name: str = ""
    """unique name of this replica that a restart keeps, such as its pod's name; a restarted leader
    then leads again at once; empty: made of host and process"""
    lease_duration_s: float = 15.0
    """seconds without a renewal of the Lease until another replica may lead"""
    lease_renew_deadline_s: float = 10.0
    """seconds after its last renewal until the leader stops writing"""
    lease_retry_s: float = 1.5
    """seconds between two renewals of the Lease, or between two reads of it"""
    log_level: LogLevel = "info"
    """least level that is logged"""
