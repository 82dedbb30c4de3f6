"""kubexec.sh of a launcher runs commands in the pods of workers, on genuine kubelets."""

import subprocess
from typing import Any, Final

import pytest

from edgeai.cli.api import Object
from globalmanager.kinds.elastic.trainingjob import files
from globalmanager.kinds.elastic.trainingjob.launcher import ROLE_RULES
from tests.cluster.images import BASE
from tests.support.cluster import EDGES, Cluster
from tests.support.waiting import eventually

pytestmark = pytest.mark.timeout(300, func_only=True)

NAMESPACE: Final = "/api/v1/namespaces/default"
LAUNCHER: Final = "mnist-launcher"
WORKER: Final = "mnist-worker-0"
PAIR: Final = "mnist-worker-1"
"""Has a second container."""
STRANGER: Final = "mnist-worker-10"
"""Is not named by the Role."""
FAILED: Final = 255
AGENT: Final = files.KUBEXEC_PATH


def named(kind: str, name: str, api: str = "v1", **content: Any) -> Object:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **content}


def container(name: str, **fields: Any) -> Object:
    command = ["sleep", "infinity"]
    return {"name": name, "image": BASE, "imagePullPolicy": "Never", "command": command, **fields}


def pod(name: str, *containers: Object, **spec: Any) -> Object:
    common = {"nodeName": EDGES[0], "terminationGracePeriodSeconds": 0}
    return named("Pod", name, spec={**common, "containers": list(containers), **spec})


def launcher() -> Object:
    items = [
        {"key": key, "path": key, "mode": 0o555} for key in (files.KUBEXEC, files.KUBEXEC_PROGRAM)
    ]
    volume = {"name": "mpi", "configMap": {"name": "mnist-config", "items": items}}
    mounts = [{"name": "mpi", "mountPath": files.MPI_DIRECTORY}]
    main = container("launcher", volumeMounts=mounts)
    return pod(LAUNCHER, main, serviceAccountName=LAUNCHER, volumes=[volume])


def rights() -> list[Object]:
    group = "rbac.authorization.k8s.io"
    rules = [{**rule, "resourceNames": [WORKER, PAIR, "mnist-worker-9"]} for rule in ROLE_RULES]
    role = {"apiGroup": group, "kind": "Role", "name": LAUNCHER}
    subjects = [{"kind": "ServiceAccount", "name": LAUNCHER, "namespace": "default"}]
    return [
        named("ServiceAccount", LAUNCHER),
        named("Role", LAUNCHER, f"{group}/v1", rules=rules),
        named("RoleBinding", LAUNCHER, f"{group}/v1", roleRef=role, subjects=subjects),
    ]


@pytest.fixture(scope="module")
def job(cluster: Cluster) -> Cluster:
    """The cluster with a launcher and workers that run."""
    workers = [pod(name, container("worker")) for name in (WORKER, STRANGER)]
    pair = pod(PAIR, container("worker", env=[{"name": "WHO", "value": "main"}]), container("side"))
    config = named("ConfigMap", "mnist-config", data=files.file_contents([WORKER], 1))
    for each in (*rights(), config, launcher(), *workers, pair):
        cluster.client.create(each)

    def running() -> bool:
        pods = cluster.client.list(f"{NAMESPACE}/pods")
        phases = {each["metadata"]["name"]: each["status"]["phase"] for each in pods}
        assert set(phases.values()) == {"Running"}, phases
        return True

    cluster.eventually("the pods to run", running)
    return cluster


def on(cluster: Cluster, pod: str, script: str, *arguments: str) -> Any:
    """What a script of the shell says in a pod."""
    return cluster.control_plane.kubectl("exec", pod, "--", "sh", "-c", script, "sh", *arguments)


def run(cluster: Cluster, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """kubexec.sh in the launcher, without stdin."""
    done: subprocess.CompletedProcess[str] = on(
        cluster, LAUNCHER, f'{AGENT} "$@" </dev/null', *arguments
    )
    return done


def test_the_streams_and_the_exit_code_are_those_of_the_command(job: Cluster) -> None:
    done = run(job, WORKER, "hostname; echo wrong >&2; exit 7")
    assert (done.stdout, done.returncode) == (f"{WORKER}\n", 7)
    assert "wrong\n" in done.stderr
    assert run(job, WORKER, "true").returncode == 0


def test_words_are_joined_as_ssh_joins_them(job: Cluster) -> None:
    """OpenMPI sends words with literal quotes."""
    done = run(job, WORKER, " printf", "'%s,'", "a", '"b c"', "$((1+1))")
    assert done.stdout == "a,b c,2,"


def test_a_silent_command_keeps_its_connection(job: Cluster) -> None:
    """The program says something now and then, which the command does not notice."""
    assert run(job, WORKER, "sleep 35; echo done").stdout == "done\n"


def test_much_output_comes_whole(job: Cluster) -> None:
    script = f"{AGENT} {WORKER} 'seq 1 300000' </dev/null | md5sum; seq 1 300000 | md5sum"
    theirs, ours = on(job, LAUNCHER, script).stdout.splitlines()
    assert theirs == ours


def test_stdin_reaches_the_command(job: Cluster) -> None:
    script = f"seq 1 30000 | {AGENT} {WORKER} 'head -n 30000 | md5sum'; seq 1 30000 | md5sum"
    theirs, ours = on(job, LAUNCHER, script).stdout.splitlines()
    assert theirs == ours


def test_a_command_without_stdin_reads_the_end_of_it(job: Cluster) -> None:
    assert run(job, WORKER, "cat; echo done").stdout == "done\n"


def test_a_pod_with_two_containers_runs_it_in_the_first(job: Cluster) -> None:
    assert run(job, PAIR, "echo $WHO").stdout == "main\n"


@pytest.mark.parametrize(
    ("pod", "words"),
    [
        pytest.param("mnist-worker-9", 'pods "mnist-worker-9" not found', id="no such pod"),
        pytest.param(STRANGER, f'"{STRANGER}" is forbidden', id="a pod without rights"),
    ],
)
def test_a_command_that_cannot_run_fails_as_with_ssh(job: Cluster, pod: str, words: str) -> None:
    done = run(job, pod, "true")
    assert done.returncode == FAILED
    assert words in done.stderr


def runs(cluster: Cluster, pod: str, mark: str) -> bool:
    """Whether `sleep <mark>` runs in the pod."""
    done = on(cluster, pod, f"grep -lsz '^{mark}$' /proc/[0-9]*/cmdline; echo asked")
    assert done.stdout.endswith("asked\n"), done.stderr
    return bool(done.stdout != "asked\n")


@pytest.mark.parametrize(
    ("signal", "mark", "code"),
    [("TERM", "7001", 128 + 15), ("HUP", "7002", 128 + 1), ("KILL", "7003", 128 + 9)],
)
def test_the_end_of_the_agent_ends_the_command(
    job: Cluster, signal: str, mark: str, code: int
) -> None:
    """With its children, also those in a session of their own."""
    agent = f"{AGENT} {WORKER} 'setsid sleep {mark} & exec sleep {mark}' </dev/null"
    waits = f"{agent} & echo $! >/tmp/pid-{mark}; wait $!; echo $? >/tmp/code-{mark}"
    on(job, LAUNCHER, f"({waits}) >/dev/null 2>&1 &")
    eventually("the command in the worker", lambda: runs(job, WORKER, mark))
    on(job, LAUNCHER, f"kill -{signal} $(cat /tmp/pid-{mark})")
    eventually("the end of the command", lambda: not runs(job, WORKER, mark))
    ended = eventually("the agent's end", lambda: on(job, LAUNCHER, f"cat /tmp/code-{mark}").stdout)
    assert int(ended) == code
