"""OpenMPI starts its ranks by kubexec.sh on workers whose names do not resolve."""

import shutil
import socket
from pathlib import Path
from typing import Any, Final

import pytest

from edgeai.localcluster.objects.resources import CONFIGMAPS, PODS, Object
from globalmanager.kinds.elastic.trainingjob import files
from tests.edgeai.localcluster.running import (
    RunningCluster,
    container,
    log_of,
    new_pod,
    running_cluster,
)

pytestmark = pytest.mark.skipif(
    not shutil.which("mpirun"), reason="there is no mpirun: install openmpi-bin"
)
WORKERS: Final = ("mnist-worker-0", "mnist-worker-10")
SLOTS: Final = 2
ENDS: Final = ("Succeeded", "Failed")
AS_ROOT: Final = [
    {"name": name, "value": "1"}
    for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")
]
AGENT: Final = {"name": "OMPI_MCA_plm_rsh_agent", "value": files.KUBEXEC_PATH}
# All pods are on this machine, and reach one another by its loopback alone.
LOOPBACK: Final = {"name": "OMPI_MCA_oob_tcp_if_include", "value": "lo"}
RANKS: Final = (
    "mpirun --hostfile /job/hostfile --tag-output --oversubscribe"
    " sh -c 'echo \"rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE on $HOSTNAME\"'"
)


def launcher(script: str) -> Object:
    items = [{"key": files.DEEPSPEED_HOSTFILE, "path": files.HOSTFILE}]
    volumes: list[Object] = [
        {"name": "mpi", "configMap": {"name": "config", "defaultMode": 0o555}},
        {"name": "job", "configMap": {"name": "config", "items": items}},
    ]
    mounts = [
        {"name": "mpi", "mountPath": files.MPI_DIRECTORY},
        {"name": "job", "mountPath": files.DEEPSPEED_DIRECTORY},
    ]
    main = container(script, volumeMounts=mounts, env=[*AS_ROOT, AGENT, LOOPBACK])
    spec: dict[str, Any] = {"serviceAccountName": "launcher", "volumes": volumes}
    return new_pod("launcher", main, restartPolicy="Never", **spec)


async def run(cluster: RunningCluster, tmp_path: Path, script: str) -> tuple[str, str]:
    """Phase and log of a launcher whose workers run."""
    names = {"namespace": "default", "name": "config"}
    cluster.store.create(
        CONFIGMAPS, {"metadata": names, "data": files.file_contents(WORKERS, SLOTS)}
    )
    for worker in WORKERS:
        cluster.store.create(PODS, new_pod(worker, container("sleep 600", env=AS_ROOT)))
    for worker in WORKERS:
        await cluster.until_phase(worker, "Running")
    cluster.store.create(PODS, launcher(script))
    pod = await cluster.until_pod("launcher", lambda pod: pod["status"]["phase"] in ENDS)
    return pod["status"]["phase"], await log_of(cluster, tmp_path, "launcher")


async def test_ranks_run_in_the_workers(tmp_path: Path) -> None:
    for worker in WORKERS:
        with pytest.raises(socket.gaierror):
            socket.getaddrinfo(worker, None)
    async with running_cluster(tmp_path) as cluster:
        phase, said = await run(cluster, tmp_path, RANKS)
    assert phase == "Succeeded", said
    ranks = sorted(line.partition(":")[2] for line in said.splitlines() if "rank" in line)
    hosts = [WORKERS[rank // SLOTS] for rank in range(4)]
    assert ranks == [f"rank {rank} of 4 on {host}" for rank, host in enumerate(hosts)]


async def test_a_rank_that_fails_fails_the_launcher(tmp_path: Path) -> None:
    script = "mpirun --hostfile /job/hostfile --oversubscribe sh -c 'exit 3'"
    async with running_cluster(tmp_path) as cluster:
        phase, said = await run(cluster, tmp_path, script)
    assert phase == "Failed", said
    assert "exited with" in said or "non-zero" in said
