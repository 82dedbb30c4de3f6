"""spec.transport: how the edge workers of a job reach the job's Service in the cloud.

With `auto` nothing is added to the environment: the SDK finds the proxy by LC_SERVER, and decides
at the worker's start. `direct` adds only TRANSPORT, `relay` also the variables of the proxy.
"""

from collections.abc import Iterable
from urllib.parse import urlsplit

from edgeai.api.workers import Transport
from globalmanager.contract import WorkerSettings
from globalmanager.kinds.shared.pods import WORKER_SECRET, EnvVar, literal

# The worker reports to the LocalController of its own node, which is no target of the proxy.
_HERE = ("localhost", "127.0.0.1", "::1", "$(HOST_IP)")


def environment(
    transport: Transport, settings: WorkerSettings, *, beside: Iterable[str] = ()
) -> list[EnvVar]:
    """Variables that follow those of `pods.worker_api` and WORKER_NAME.

    Most HTTP clients heed HTTP_PROXY, so other images than those with the SDK use the relay, too.

    Args: beside: URLs that the workers reach without the proxy
    """
    # Not even a variable: a new variable would restart each running worker with an upgrade.
    if transport is Transport.AUTO:
        return []
    mode = literal("TRANSPORT", transport.value)
    if transport is Transport.DIRECT:
        return [mode]
    port = settings.worker_api_port
    # By name and secret, as at the worker API: a worker reaches its own job's Service alone.
    proxy = f"http://$(WORKER_NAME):$({WORKER_SECRET})@$(HOST_IP):{port}"
    # The proxy refuses a bucket, so the workers go there directly.
    hosts = [urlsplit(url).hostname for url in beside]
    exceptions = ",".join([*_HERE, *(host for host in hosts if host)])
    # Some clients read the names in capitals alone, some the others alone.
    return [
        mode,
        literal("HTTP_PROXY", proxy),
        literal("http_proxy", proxy),
        literal("NO_PROXY", exceptions),
        literal("no_proxy", exceptions),
    ]
