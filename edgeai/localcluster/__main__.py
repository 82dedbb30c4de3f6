"""`python -m edgeai.localcluster --state-dir DIR`: runs one local cluster until SIGTERM or SIGINT.

The process logs JSON to stderr. Exit codes: 0 after an orderly stop; 1 when a part of the cluster
cannot start or fails; 2 for wrong settings; 3 when the state directory cannot be used.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from edgeai.errors import SettingsError
from edgeai.extras import required

with required("localcluster", "cli"):
    from common import logs, settings
    from common.settings import Setting
    from edgeai.localcluster.cluster import Cluster, ClusterSettings
    from edgeai.localcluster.errors import ClusterError, StateError
    from edgeai.localcluster.network.isolation import Opening

log = logs.get_logger(__name__)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the command line and of the environment."""

    state_dir: Annotated[
        Path, Setting("directory of the cluster's objects and pods", env="LOCALCLUSTER_STATE_DIR")
    ]
    nodes: Annotated[
        tuple[str, ...],
        Setting(
            'names of the nodes; one that begins with "cloud" is a cloud node',
            env="LOCALCLUSTER_NODES",
        ),
    ] = ("cloud0", "edge0", "edge1")
    pod_env: Annotated[
        dict[str, str],
        Setting("environment variables of every container", env="LOCALCLUSTER_POD_ENV"),
    ] = {}
    isolated_nodes: Annotated[
        tuple[str, ...],
        Setting(
            "nodes whose pods reach only each other and --openings; needs root",
            env="LOCALCLUSTER_ISOLATED_NODES",
        ),
    ] = ()
    openings: Annotated[
        tuple[str, ...],
        Setting(
            "what isolated nodes reach: SERVICE.NAMESPACE:PORT or ADDRESS:PORT",
            env="LOCALCLUSTER_OPENINGS",
        ),
    ] = ()
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Setting("least severe message that is logged", env="LOCALCLUSTER_LOG_LEVEL"),
    ] = "info"

    def cluster(self) -> ClusterSettings:
        """The settings of the cluster. Raises: SettingsError"""
        if not self.nodes:
            raise SettingsError("flag --nodes", "must name one node at least")
        return ClusterSettings(
            state_dir=self.state_dir,
            nodes=tuple(dict.fromkeys(self.nodes)),
            pod_env=self.pod_env,
            isolated_nodes=self.isolated_nodes,
            openings=tuple(map(_opening, self.openings)),
        )


def _opening(text: str) -> Opening:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise SettingsError("flag --openings", f"{text!r} is not HOST:PORT")
    return Opening(host, int(port))


async def run(cluster_settings: ClusterSettings) -> None:
    cluster = Cluster(cluster_settings)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, cluster.stop)
    await cluster.run()


def main() -> int:
    logs.configure("localcluster")
    try:
        arguments = settings.load(
            Settings,
            prog="python -m edgeai.localcluster",
            argv=sys.argv[1:],
            env=os.environ,
            description="A small Kubernetes-compatible cluster of local processes.",
        )
        logs.configure("localcluster", level=arguments.log_level)
        asyncio.run(run(arguments.cluster()))
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
