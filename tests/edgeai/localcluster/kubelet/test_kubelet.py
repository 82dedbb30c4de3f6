"""Pods as processes: start, restart, probes, termination."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from itertools import islice
from pathlib import Path

import pytest

from edgeai.localcluster.kubelet.kubelet import Kubelet
from edgeai.localcluster.kubelet.pod import PodHost
from edgeai.localcluster.kubelet.process import Reaper
from edgeai.localcluster.network.addresses import AddressPool, claim_network
from edgeai.localcluster.network.pod_addresses import PodAddresses
from edgeai.localcluster.objects.pods import is_ready
from edgeai.localcluster.objects.resources import (
    CONFIGMAPS,
    ENDPOINTS,
    EVENTS,
    PODS,
    SECRETS,
    SERVICES,
    Object,
)
from edgeai.localcluster.objects.store import Store
from tests.edgeai.localcluster.conftest import until
from tests.edgeai.localcluster.running import (
    POD_IP,
    RunningCluster,
    container,
    is_gone,
    log_of,
    new_pod,
    python,
    running_cluster,
)
from tests.support.waiting import async_eventually


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RunningCluster]:
    async with running_cluster(tmp_path) as cluster:
        yield cluster


def main_status(pod: Object) -> Object:
    status: Object = pod["status"]["containerStatuses"][0]
    return status


@pytest.mark.parametrize(
    ("script", "phase", "code", "reason"),
    [
        ("exit 0", "Succeeded", 0, "Completed"),
        ("exit 3", "Failed", 3, "Error"),
        ("kill -KILL $$$$", "Failed", 137, "Error"),
        ("kill -TERM $$$$", "Failed", 143, "Error"),
    ],
)
async def test_exit_codes(
    cluster: RunningCluster, script: str, phase: str, code: int, reason: str
) -> None:
    cluster.store.create(PODS, new_pod("p", container(script), restartPolicy="Never"))
    state = main_status(await cluster.until_phase("p", phase))["state"]["terminated"]
    assert (state["exitCode"], state["reason"]) == (code, reason)
    assert state.get("signal") == (code - 128 if code > 128 else None)


async def test_a_program_that_is_missing_fails_the_pod(cluster: RunningCluster) -> None:
    bad = container("", command=["no-such-program"])
    cluster.store.create(PODS, new_pod("p", bad, restartPolicy="Never"))
    state = main_status(await cluster.until_phase("p", "Failed"))["state"]["terminated"]
    assert (state["exitCode"], state["reason"]) == (128, "StartError")
    assert "no-such-program" in state["message"]


async def test_an_image_of_a_registry_that_cannot_exist_is_not_pulled(
    cluster: RunningCluster,
) -> None:
    """As a kubelet tells it: the two reasons in turn, and the container never starts."""
    image = "registry.invalid/team/train:1"
    cluster.store.create(PODS, new_pod("p", container("exit 0", image=image)))
    for reason in ("ErrImagePull", "ImagePullBackOff", "ErrImagePull"):
        state = main_status(await cluster.until_pod("p", lambda pod: _waits(pod, reason)))  # noqa: B023
        message = state["state"]["waiting"]["message"]
        assert image in message
        assert "lookup registry.invalid: no such host" in message
    await cluster.until_phase("p", "Pending")
    cluster.store.delete(PODS, "default", "p")
    await cluster.until_gone("p")


def _waits(pod: Object, reason: str) -> bool:
    entries = pod["status"].get("containerStatuses") or [{}]
    waiting: Object = (entries[0].get("state") or {}).get("waiting") or {}
    return waiting.get("reason") == reason


async def test_always_restarts_with_crash_loop_and_previous_log(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    cluster.store.create(PODS, new_pod("p", container("echo run; exit 1")))
    pod = await cluster.until_pod(
        "p",
        lambda pod: (
            pod["status"].get("containerStatuses")
            and main_status(pod)["restartCount"] >= 2
            and main_status(pod)["state"].get("waiting", {}).get("reason") == "CrashLoopBackOff"
        ),
    )
    assert pod["status"]["phase"] == "Running"
    assert main_status(pod)["lastState"]["terminated"]["exitCode"] == 1
    assert await log_of(cluster, tmp_path, "p", previous="true") == "run\n"


async def test_on_failure_restarts_until_success(cluster: RunningCluster) -> None:
    script = "test -e $HOME/tried && exit 0; touch $HOME/tried; exit 1"
    cluster.store.create(PODS, new_pod("p", container(script), restartPolicy="OnFailure"))
    assert main_status(await cluster.until_phase("p", "Succeeded"))["restartCount"] == 1


async def test_init_containers_run_in_order_before_the_others(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    mount = [{"name": "v", "mountPath": "/v"}]
    inits = [
        container(f"echo {name} >> $F", env=[{"name": "F", "value": "/v/f"}], volumeMounts=mount)
        | {"name": name}
        for name in ("one", "two")
    ]
    main = container("cat /v/f", volumeMounts=mount)
    volumes = [{"name": "v", "emptyDir": {}}]
    pod = new_pod("p", main, restartPolicy="Never", initContainers=inits, volumes=volumes)
    cluster.store.create(PODS, pod)
    await cluster.until_phase("p", "Succeeded")
    assert await log_of(cluster, tmp_path, "p") == "one\ntwo\n"


async def test_an_init_container_that_fails_fails_the_pod(cluster: RunningCluster) -> None:
    init = container("exit 1") | {"name": "init"}
    pod = new_pod("p", container("true"), restartPolicy="Never", initContainers=[init])
    cluster.store.create(PODS, pod)
    pod = await cluster.until_phase("p", "Failed")
    assert main_status(pod)["state"]["waiting"]["reason"] == "PodInitializing"


async def test_environment_is_clean(
    cluster: RunningCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEAKED", "1")
    main = container("", command=["env"], env=[{"name": "MINE", "value": "2"}, POD_IP])
    cluster.store.create(PODS, new_pod("p", main, restartPolicy="Never"))
    pod = await cluster.until_phase("p", "Succeeded")
    lines = (await log_of(cluster, tmp_path, "p")).splitlines()
    found = dict(line.split("=", 1) for line in lines)
    assert found.keys() == {
        "MINE",
        "PATH",
        "LANG",
        "HOME",
        "TMPDIR",
        "HOSTNAME",
        "POD_IP",
    }
    assert found["POD_IP"] == pod["status"]["podIP"]


async def test_python3_is_the_interpreter_of_the_cluster(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    main = container("", command=["python3", "-c", "import sys; print(sys.executable)"])
    cluster.store.create(PODS, new_pod("p", main, restartPolicy="Never"))
    await cluster.until_phase("p", "Succeeded")
    assert await log_of(cluster, tmp_path, "p") == sys.executable + "\n"


async def test_config_maps_and_secrets_as_files(cluster: RunningCluster, tmp_path: Path) -> None:
    names = {"namespace": "default", "name": "conf"}
    cluster.store.create(CONFIGMAPS, {"metadata": names, "data": {"a": "from map "}})
    cluster.store.create(SECRETS, {"metadata": names, "stringData": {"b": "from secret"}})
    volumes = [
        {"name": "m", "configMap": {"name": "conf"}},
        {"name": "s", "secret": {"secretName": "conf"}},
    ]
    mounts = [{"name": "m", "mountPath": "/etc/m"}, {"name": "s", "mountPath": "/etc/s"}]
    main = container("cat /etc/m/a /etc/s/b", volumeMounts=mounts)
    cluster.store.create(PODS, new_pod("p", main, restartPolicy="Never", volumes=volumes))
    await cluster.until_phase("p", "Succeeded")
    assert await log_of(cluster, tmp_path, "p") == "from map from secret"


async def test_a_pod_waits_for_its_host_path_and_says_so(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    volumes = [{"name": "v", "hostPath": {"path": str(data), "type": "Directory"}}]
    main = container("true", volumeMounts=[{"name": "v", "mountPath": "/v"}])
    cluster.store.create(PODS, new_pod("p", main, restartPolicy="Never", volumes=volumes))

    def failed_mount() -> Object | None:
        events = cluster.store.list(EVENTS).items
        return next((event for event in events if event["reason"] == "FailedMount"), None)

    assert str(data) in (await cluster.until(failed_mount))["message"]
    waiting = main_status(await cluster.until_pod("p", is_misconfigured))["state"]["waiting"]
    assert 'volume "v"' in waiting["message"]
    assert f"{data} does not exist" in waiting["message"]
    data.mkdir()
    await cluster.until_phase("p", "Succeeded")


async def test_the_containers_that_come_first_name_a_volume_that_fails(
    cluster: RunningCluster,
) -> None:
    volumes = [{"name": "v", "hostPath": {"path": "/dev/null/x", "type": "DirectoryOrCreate"}}]
    inits = [container("true", name="first")]
    pod = new_pod("p", container("true"), initContainers=inits, volumes=volumes)
    cluster.store.create(PODS, pod)
    status = (await cluster.until_pod("p", is_misconfigured))["status"]
    assert "/dev/null/x" in status["initContainerStatuses"][0]["state"]["waiting"]["message"]
    assert main_status({"status": status})["state"]["waiting"] == {"reason": "PodInitializing"}


def is_misconfigured(pod: Object) -> bool:
    return "CreateContainerConfigError" in str(pod["status"])


async def test_a_pod_with_a_negative_grace_can_be_deleted(cluster: RunningCluster) -> None:
    pod = new_pod("p", container("sleep 60"), terminationGracePeriodSeconds=-5)
    cluster.store.create(PODS, pod)
    await cluster.until_phase("p", "Running")
    cluster.store.delete(PODS, "default", "p")
    await cluster.until_gone("p")


async def test_a_pod_waits_for_its_config_map(cluster: RunningCluster) -> None:
    source = [{"configMapRef": {"name": "conf"}}]
    main = container("exit $CODE", envFrom=source)
    cluster.store.create(PODS, new_pod("p", main, restartPolicy="Never"))
    reason = "CreateContainerConfigError"
    await cluster.until_pod("p", lambda pod: reason in str(pod["status"]))
    names = {"namespace": "default", "name": "conf"}
    cluster.store.create(CONFIGMAPS, {"metadata": names, "data": {"CODE": "5"}})
    pod = await cluster.until_phase("p", "Failed")
    assert main_status(pod)["state"]["terminated"]["exitCode"] == 5


async def test_a_container_without_command_says_that_images_are_not_run(
    cluster: RunningCluster,
) -> None:
    cluster.store.create(PODS, new_pod("p", {"name": "main", "image": "busybox"}))
    pod = await cluster.until_pod("p", lambda pod: pod["status"].get("containerStatuses"))
    pod = await cluster.until_pod("p", lambda pod: "commands, not images" in str(pod["status"]))
    waits = main_status(pod)["state"]["waiting"]
    assert waits["reason"] == "CreateContainerConfigError"
    assert any("commands, not images" in e["message"] for e in cluster.store.list(EVENTS).items)


async def test_service_names_become_cluster_ips(cluster: RunningCluster, tmp_path: Path) -> None:
    spec = {"selector": {"app": "x"}, "ports": [{"port": 5000}]}
    metadata = {"name": "big", "namespace": "default"}
    cluster.store.create(SERVICES, {"metadata": metadata, "spec": spec})
    service = await cluster.until(
        lambda: (s := cluster.find(SERVICES, "big")) and s["spec"].get("clusterIP") and s
    )
    main = container("echo $BIG_MODEL_IP", env=[{"name": "BIG_MODEL_IP", "value": "big.default"}])
    cluster.store.create(PODS, new_pod("p", main, restartPolicy="Never"))
    await cluster.until_phase("p", "Succeeded")
    assert await log_of(cluster, tmp_path, "p") == service["spec"]["clusterIP"] + "\n"


async def test_host_network_has_the_address_of_the_node(cluster: RunningCluster) -> None:
    cluster.store.create(PODS, new_pod("p", python("input()"), hostNetwork=True))
    pod = await cluster.until_pod("p", lambda pod: pod["status"].get("podIP"))
    assert pod["status"]["podIP"] == pod["status"]["hostIP"] == cluster.running.nodes["edge0"]


async def test_readiness_follows_the_probe(cluster: RunningCluster, tmp_path: Path) -> None:
    flag = tmp_path / "ready"
    probe = {
        "exec": {"command": ["test", "-e", str(flag)]},
        "periodSeconds": 0.05,
        "failureThreshold": 1,
    }
    cluster.store.create(PODS, new_pod("p", container("sleep 60", readinessProbe=probe)))
    pod = await cluster.until_phase("p", "Running")
    assert not is_ready(pod)
    flag.touch()
    await cluster.until_pod("p", is_ready)
    flag.unlink()
    await cluster.until_pod("p", lambda pod: not is_ready(pod))


async def test_liveness_restarts(cluster: RunningCluster) -> None:
    probe = {"tcpSocket": {"port": 1}, "periodSeconds": 0.05, "failureThreshold": 2}
    cluster.store.create(PODS, new_pod("p", container("exec sleep 60", livenessProbe=probe)))
    pod = await cluster.until_pod(
        "p", lambda pod: '"restartCount": 1' in str(pod).replace("'", '"')
    )
    assert main_status(pod)["lastState"]["terminated"]["exitCode"] == 143


async def test_http_probe_wants_a_good_status(cluster: RunningCluster) -> None:
    script = (
        "import os, http.server as h\n"
        "class H(h.BaseHTTPRequestHandler):\n"
        "  def do_GET(self):\n"
        "    self.send_response(200 if self.path == '/ok' else 500); self.end_headers()\n"
        "h.HTTPServer((os.environ['POD_IP'], 8000), H).serve_forever()\n"
    )
    for name, path in (("good", "/ok"), ("bad", "/no")):
        probe = {"httpGet": {"path": path, "port": 8000}, "periodSeconds": 0.05}
        cluster.store.create(
            PODS, new_pod(name, python(script, env=[POD_IP], readinessProbe=probe))
        )
    await cluster.until_pod("good", is_ready)
    await cluster.until(lambda: "500" in str(cluster.store.list(EVENTS).items))
    bad = cluster.pod("bad")
    assert bad is not None
    assert not is_ready(bad)


async def test_termination_is_asked_for_and_then_the_pod_is_gone(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    witness = tmp_path / "asked"
    script = f"trap 'touch {witness}; exit 0' TERM; touch $HOME/up; while :; do sleep 0.05; done"
    cluster.store.create(PODS, new_pod("p", container(script)))
    pod = await cluster.until_phase("p", "Running")
    # A trap works from the moment that the shell has read it.
    await async_eventually("its trap", lambda: list(tmp_path.glob("state/pods/*/up")))
    cluster.store.delete(PODS, "default", "p")
    await cluster.until_gone("p")
    assert witness.exists()
    assert not (tmp_path / "state" / "pods" / pod["metadata"]["uid"]).exists()


async def test_who_ignores_sigterm_is_killed_after_the_grace(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    script = "trap '' TERM; touch $HOME/up; while :; do sleep 0.05; done"
    pod = new_pod("p", container(script), terminationGracePeriodSeconds=1)
    cluster.store.create(PODS, pod)
    await cluster.until_phase("p", "Running")
    # A trap works from the moment that the shell has read it.
    await async_eventually("its trap", lambda: list(tmp_path.glob("state/pods/*/up")))
    loop = asyncio.get_running_loop()
    begun = loop.time()
    cluster.store.delete(PODS, "default", "p")
    await cluster.until_gone("p")
    assert 0.9 < loop.time() - begun < 20  # the default grace is 30


async def test_deletion_by_force_kills(cluster: RunningCluster) -> None:
    pod = new_pod("p", container("trap '' TERM; while :; do sleep 0.05; done"))
    cluster.store.create(PODS, pod)
    running_pod = await cluster.until_phase("p", "Running")
    pid = int(main_status(running_pod)["containerID"].removeprefix("process://"))
    cluster.store.delete(PODS, "default", "p", grace_period_s=0)
    await async_eventually("the process's end", lambda: is_gone(pid))


async def test_who_comes_under_the_name_of_one_deleted_by_force_stays(
    cluster: RunningCluster,
) -> None:
    cluster.store.create(PODS, new_pod("p", python("input()")))
    await cluster.until_phase("p", "Running")
    cluster.store.delete(PODS, "default", "p", grace_period_s=0)
    again = cluster.store.create(PODS, new_pod("p", container("true"), restartPolicy="Never"))
    pod = await cluster.until_phase("p", "Succeeded")
    assert pod["metadata"]["uid"] == again["metadata"]["uid"]


async def test_the_address_of_a_deleted_pod_is_given_out_again(
    store: Store, tmp_path: Path
) -> None:
    with (
        contextlib.closing(claim_network()) as network,
        contextlib.closing(Reaper(tmp_path)) as reaper,
    ):
        host = PodHost(
            store=store,
            reaper=reaper,
            addresses=PodAddresses(store, AddressPool("pod", islice(network.pods(), 2))),
            pods_directory=tmp_path,
            base_env={},
        )
        kubelet = asyncio.create_task(Kubelet({"edge0": "127.0.0.1"}, host).run(), name="kubelet")
        try:
            for _ in range(3):
                store.create(PODS, new_pod("p", python(""), restartPolicy="Never"))
                await until(store, lambda: "Succeeded" in str(store.list(PODS).items))
                store.delete(PODS, "default", "p")
                await until(store, lambda: not store.list(PODS).items)
        finally:
            kubelet.cancel()
            await asyncio.wait([kubelet])


async def test_the_whole_group_ends_with_its_first_process(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    script = "sleep 60 & echo $!"
    cluster.store.create(PODS, new_pod("p", container(script), restartPolicy="Never"))
    await cluster.until_phase("p", "Succeeded")
    pid = int(await log_of(cluster, tmp_path, "p"))
    await async_eventually("the process's end", lambda: is_gone(pid))


async def test_a_process_that_left_the_group_ends_with_the_first_process(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    """torchrun starts its processes in sessions of their own."""
    script = "setsid sleep 600 & echo $!; kill -KILL $$$$"  # $$$$ stands for $$
    cluster.store.create(PODS, new_pod("p", container(script), restartPolicy="Never"))
    await cluster.until_phase("p", "Failed")
    pid = int(await log_of(cluster, tmp_path, "p"))
    await async_eventually("the process's end", lambda: is_gone(pid))


async def test_a_process_that_left_the_group_ends_when_the_pod_is_deleted_by_force(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    script = "setsid sleep 600 & echo $!; sleep 600"
    cluster.store.create(PODS, new_pod("p", container(script)))
    await cluster.until_pod("p", is_ready)

    pid = int(await async_eventually("its number", lambda: log_of(cluster, tmp_path, "p")))
    cluster.store.delete(PODS, "default", "p", grace_period_s=0)
    await async_eventually("the process's end", lambda: is_gone(pid))


async def test_containers_of_a_pod_share_its_fate(cluster: RunningCluster) -> None:
    other = container("sleep 60") | {"name": "other"}
    cluster.store.create(PODS, new_pod("p", container("sleep 60"), other))
    await cluster.until_pod("p", is_ready)
    cluster.store.delete(PODS, "default", "p")
    await cluster.until_gone("p")


async def test_a_settled_cluster_writes_nothing(cluster: RunningCluster, tmp_path: Path) -> None:
    count = ["sh", "-c", "echo >> $HOME/probed"]
    probe = {"exec": {"command": count}, "periodSeconds": 0.02}
    cluster.store.create(PODS, new_pod("p", container("sleep 60", readinessProbe=probe)))
    pod = await cluster.until_pod("p", is_ready)
    probed = tmp_path / "state" / "pods" / pod["metadata"]["uid"] / "probed"
    spec = {"selector": {"app": "p"}, "ports": [{"port": 80}]}
    metadata = {"name": "s", "namespace": "default"}
    cluster.store.create(SERVICES, {"metadata": metadata, "spec": spec})
    await cluster.until(lambda: "addresses" in str(cluster.find(ENDPOINTS, "s")))
    before = cluster.store.resource_version
    counted = probed.stat().st_size
    await async_eventually("ten more probes", lambda: probed.stat().st_size >= counted + 10)
    assert cluster.store.resource_version == before


async def test_lost_containers_run_again_by_policy(tmp_path: Path) -> None:
    """A pod that the API has as Running, of a cluster that was killed."""
    async with running_cluster(tmp_path) as cluster:
        for name, policy in (("again", "Always"), ("once", "Never")):
            cluster.store.create(PODS, new_pod(name, container("sleep 60"), restartPolicy=policy))
        await cluster.until_pod("again", is_ready)
        await cluster.until_pod("once", is_ready)
    async with running_cluster(tmp_path) as cluster:
        again = await cluster.until_pod("again", lambda pod: main_status(pod)["restartCount"] == 1)
        once = await cluster.until_phase("once", "Failed")
    assert main_status(again)["lastState"]["terminated"]["reason"] == "ContainerStatusUnknown"
    assert main_status(once)["state"]["terminated"]["exitCode"] == 137
