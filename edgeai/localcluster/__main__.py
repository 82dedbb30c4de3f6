"""`python -m edgeai.localcluster --state-dir DIR`: runs one local cluster until SIGTERM or SIGINT.

The process logs JSON to stderr. Exit codes: 0 after an orderly stop; 1 when a part of the cluster
cannot start or fails; 2 for wrong settings; 3 when the state directory cannot be used.
"""

import asyncio
import os
import signal
import sys

from edgeai.errors import SettingsError
from edgeai.extras import required

with required("localcluster", "local"):
    from common import logs, settings
    from edgeai.localcluster.cluster import Cluster, ClusterSettings
    from edgeai.localcluster.errors import ClusterError, StateError

log = logs.get_logger(__name__)


async def run(cluster: Cluster) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, cluster.stop)
    await cluster.run()


def main() -> int:
    logs.configure("localcluster")
    try:
        arguments = settings.load(
            ClusterSettings,
            prog="python -m edgeai.localcluster",
            argv=sys.argv[1:],
            env=os.environ,
            description="A small Kubernetes-compatible cluster of local processes.",
        )
        logs.configure("localcluster", level=arguments.log_level)
        asyncio.run(run(Cluster(arguments)))
    except SettingsError as error:
        log.error("settings are wrong", error=str(error))
        return 2
    except ClusterError as error:
        log.error("cluster cannot start", error=str(error))
        return 3 if isinstance(error, StateError) else 1
    except ExceptionGroup as failures:
        log.exception("cluster failed", error=repr(failures.exceptions[0]))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
