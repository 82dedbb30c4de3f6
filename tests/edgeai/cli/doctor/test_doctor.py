"""Each installation is broken in one way, on a real API, and the doctor names that way alone."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml
from aiohttp import web

from edgeai.api.resources import DEPLOYMENTS, NODES, PODS, SECRETS
from edgeai.cli.credentials import certificates as made
from edgeai.cli.doctor.certificates import CA
from edgeai.cli.doctor.checks import CHECKS, findings
from edgeai.cli.doctor.diagnosis import diagnose
from edgeai.cli.doctor.edges import nodes_served
from edgeai.cli.doctor.facts import DEFINITIONS, AskAbout, gather
from edgeai.cli.doctor.finding import Finding
from edgeai.cli.doctor.parts import CONTROLLER, MANAGER
from edgeai.errors import SettingsError
from edgeai.ids import NodeName
from edgeai.kube.errors import Forbidden
from edgeai.kube.user import About, UserClient, Version
from edgeai.kubeconfig import kubeconfig_of
from globalmanager.ha import claims
from globalmanager.ha.claims import Claim
from globalmanager.ha.elector import LEASE_NAME, LEASES, REPLICA_LABEL
from globalmanager.ha.presence import CONFIG_MAPS
from tests.edgeai.cli.command import edgeai
from tests.edgeai.cli.doctor.installation import NAMESPACE, NOW, TLS, Installation, claims_of, lease
from tests.globalmanager.cluster import LocalApi
from tests.globalmanager.scripted_api import serve_scripted
from tests.support.certificates import Authority
from tests.support.kubeconfig import write_kubeconfig

CLAIMS: Final = f"{LEASE_NAME}-1"
JOBS: Final = "jointinferenceservices.edgeai.io"
IMAGE: Final = {"reason": "ImagePullBackOff", "message": "no such image edgeai/any"}
Break = Callable[[Installation], Awaitable[object]]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalApi]:
    async with LocalApi(tmp_path) as cluster:
        yield cluster


@pytest.fixture
async def installation(cluster: LocalApi, tmp_path: Path) -> AsyncIterator[Installation]:
    async with await UserClient.from_kubeconfig(cluster.kubeconfig) as kube:
        (tmp_path / "pki").mkdir()
        installation = Installation(kube, tmp_path / "pki")
        await installation.apply()
        yield installation


async def tells(_client: UserClient) -> About:
    return About(Version(1, 34), NOW)


async def found_at(
    cluster: LocalApi, namespace: str = NAMESPACE, about: AskAbout = tells
) -> list[Finding]:
    return await diagnose(cluster.kubeconfig, namespace, now=lambda: NOW, about=about)


def bad(found: list[Finding]) -> list[Finding]:
    return [each for each in found if each.level != "ok"]


async def test_of_a_good_installation_all_is_well(
    cluster: LocalApi, installation: Installation
) -> None:
    found = await found_at(cluster)
    assert bad(found) == []
    assert [each.check for each in found] == ["api", *CHECKS]


async def without_a_field(installation: Installation) -> None:
    """As a definition of an earlier release, which lacks what came later."""
    definition = await installation.kube.get(installation.ref(DEFINITIONS, JOBS))
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    del schema["properties"]["spec"]["properties"]["edgeWorker"]
    await installation.change(DEFINITIONS, JOBS, {"spec": definition["spec"]})


async def without_definitions(installation: Installation) -> None:
    for each in (await installation.kube.list(DEFINITIONS)).items:
        await installation.delete(DEFINITIONS, each["metadata"]["name"])


async def no_image(installation: Installation) -> None:
    await installation.set_status(DEPLOYMENTS, MANAGER, availableReplicas=1)
    waits = {"name": MANAGER, "state": {"waiting": IMAGE}}
    await installation.set_status(PODS, "globalmanager-a", containerStatuses=[waits])


async def no_room(installation: Installation) -> None:
    await installation.set_status(DEPLOYMENTS, MANAGER, availableReplicas=0)
    message = "0/3 nodes are available: 3 Insufficient memory."
    condition = {"type": "PodScheduled", "status": "False", "message": message}
    await installation.set_status(PODS, "globalmanager-a", conditions=[condition])


async def crashing_controller(installation: Installation) -> None:
    await installation.change(CONFIG_MAPS, CLAIMS, {"data": {"claims": claims_of("edge0")}})
    waiting = {"reason": "CrashLoopBackOff", "message": "back-off"}
    ended = {"exitCode": 4, "message": "token: gone"}
    container = {"name": CONTROLLER, "state": {"waiting": waiting}}
    container["lastState"] = {"terminated": ended}
    await installation.set_status(PODS, "localcontroller-edge1", containerStatuses=[container])


def authority_for(lasts: timedelta) -> str:
    return made.new_authority(NOW + lasts - made.AUTHORITY_LASTS).certificate


async def node_ends_soon(installation: Installation) -> None:
    await installation.trust(authority_for(timedelta(days=400)))
    await installation.show_certificates(edge0=timedelta(days=12), edge1=timedelta(days=31))


async def new_authority(installation: Installation) -> None:
    """Of two days."""
    authority = Authority(installation.directory, "short")
    await installation.certify(authority)
    data = {"ca.crt": authority.certificate.read_text()}
    await installation.change(CONFIG_MAPS, CA, {"data": data})


async def no_controller(installation: Installation) -> None:
    await installation.delete(PODS, "localcontroller-edge1")
    await installation.change(CONFIG_MAPS, CLAIMS, {"data": {"claims": claims_of("edge0")}})


def renewed(name: str, ago_s: float) -> Break:
    spec = lease("globalmanager-a_1", renewed_ago_s=ago_s)
    return lambda installation: installation.change(LEASES, name, {"spec": spec})


# What is broken -> how, the check that names it, its level, and words of the message.
BROKEN: Final[dict[str, tuple[Break, str, str, str]]] = {
    "no definition at all": (without_definitions, "definitions", "error", "no Custom"),
    "one definition is missing": (
        lambda it: it.delete(DEFINITIONS, JOBS),
        "definitions",
        "error",
        f"{JOBS} is not installed",
    ),
    "a definition of an older release": (
        without_a_field,
        "definitions",
        "error",
        "has no field .spec.edgeWorker",
    ),
    "no GlobalManager": (
        lambda it: it.delete(DEPLOYMENTS, MANAGER),
        "globalmanager",
        "error",
        f"in namespace {NAMESPACE}",
    ),
    "a GlobalManager that is scaled to none": (
        lambda it: it.change(DEPLOYMENTS, MANAGER, {"spec": {"replicas": 0}}),
        "globalmanager",
        "error",
        "scaled to 0",
    ),
    "an image that is not there": (no_image, "globalmanager", "warning", IMAGE["message"]),
    "no room for the GlobalManager": (no_room, "globalmanager", "error", "Insufficient memory"),
    "no leader": (
        lambda it: it.change(LEASES, LEASE_NAME, {"spec": {"holderIdentity": ""}}),
        "leader",
        "error",
        "no GlobalManager leads",
    ),
    "a leader that is silent": (renewed(LEASE_NAME, 31), "leader", "error", "for 31 s"),
    "a clock that is ahead": (renewed(CLAIMS, -90), "clocks", "warning", "90 s ahead"),
    "no Secret of the edge port": (
        lambda it: it.delete(SECRETS, TLS),
        "files",
        "error",
        f"Secret {NAMESPACE}/{TLS} is missing",
    ),
    "no CA for the edges": (
        lambda it: it.delete(CONFIG_MAPS, CA),
        "files",
        "error",
        f"ConfigMap {NAMESPACE}/{CA} is missing",
    ),
    "a certificate that has ended": (
        lambda it: it.certify(it.authority, timedelta(days=-1)),
        "certificates",
        "error",
        "ended at",
    ),
    "a certificate that begins later": (
        lambda it: it.certify(it.authority, timedelta(days=120)),
        "certificates",
        "error",
        "valid only from",
    ),
    "a certificate that ends soon": (
        lambda it: it.certify(it.authority, timedelta(days=10)),
        "certificates",
        "warning",
        "ends at",
    ),
    "a certificate of another CA of the same name": (
        lambda it: it.certify(Authority(it.directory, "other")),
        "certificates",
        "error",
        "has no such CA",
    ),
    "a CA that ends soon": (
        new_authority,
        "certificates",
        "warning",
        "CN=test-ca ends at",
    ),
    "a CA that is none": (
        lambda it: it.change(CONFIG_MAPS, CA, {"data": {"ca.crt": "nothing"}}),
        "certificates",
        "error",
        "ca.crt cannot be read",
    ),
    "a CA of the nodes that has ended": (
        lambda it: it.trust(authority_for(timedelta(days=-1))),
        "node certificates",
        "error",
        "so no node gets a session",
    ),
    "a CA of the nodes that ends soon": (
        lambda it: it.trust(*(authority_for(timedelta(days=each)) for each in (-1, 19, 400))),
        "node certificates",
        "warning",
        "CN=edgeai CA ends in 19 days",
    ),
    "a CA of the nodes that is none": (
        lambda it: it.trust("nothing"),
        "node certificates",
        "error",
        "ca.crt cannot be read",
    ),
    "a certificate of a node that ends soon": (
        node_ends_soon,
        "node certificates",
        "warning",
        "the certificate of node edge0, or its CA, ends in 12 days",
    ),
    "claims that are no ASCII": (
        lambda it: it.change(CONFIG_MAPS, CLAIMS, {"data": {"claims": "ü"}}),
        "edges",
        "error",
        "cannot be read",
    ),
    "a certificate that is none": (
        lambda it: it.change(SECRETS, TLS, {"data": {"tls.crt": "bm90aGluZw=="}}),
        "certificates",
        "error",
        "tls.crt cannot be read",
    ),
    "no LocalController on a node": (
        no_controller,
        "edges",
        "error",
        "no LocalController on edge1",
    ),
    "a node without session": (
        lambda it: it.change(CONFIG_MAPS, CLAIMS, {"data": {"claims": claims_of("edge0")}}),
        "edges",
        "error",
        "edge1 has no session",
    ),
    "a GlobalManager that died with its sessions": (
        renewed(CLAIMS, 31),
        "edges",
        "error",
        "edge0 has no session",
    ),
    "a LocalController that crashes": (crashing_controller, "edges", "error", "token: gone"),
    "claims that nobody can read": (
        lambda it: it.change(CONFIG_MAPS, CLAIMS, {"data": {"claims": "?"}}),
        "edges",
        "error",
        "cannot be read",
    ),
}


@pytest.mark.parametrize(("break_it", "check", "level", "words"), BROKEN.values(), ids=BROKEN)
async def test_a_broken_installation_is_named(
    cluster: LocalApi,
    installation: Installation,
    break_it: Break,
    check: str,
    level: str,
    words: str,
) -> None:
    await break_it(installation)
    finding, *others = bad(await found_at(cluster))
    assert {each.check for each in others} <= {check}
    assert (finding.check, finding.level) == (check, level)
    assert words in finding.message
    assert finding.remedy


async def test_many_nodes_without_session_are_counted(
    cluster: LocalApi, installation: Installation
) -> None:
    for number in range(2, 9):
        await installation.add_edge(f"edge{number}")
        await installation.add_pod(f"localcontroller-edge{number}", CONTROLLER, f"edge{number}")
    messages = [each.message for each in bad(await found_at(cluster))]
    assert len(messages) == 6
    assert messages[-1] == "2 further edge nodes have no session"


async def test_a_cluster_without_edge_nodes_is_told_how_to_label_one(
    cluster: LocalApi, installation: Installation
) -> None:
    for node in ("edge0", "edge1"):
        await installation.delete(NODES, node)
    (finding,) = bad(await found_at(cluster))
    assert (finding.check, finding.level) == ("edges", "warning")
    assert "kubectl label node" in finding.remedy


async def test_what_the_caller_may_not_read_is_unknown_and_hides_nothing_else(
    installation: Installation,
) -> None:
    facts = await gather(installation.kube, NAMESPACE, now=lambda: NOW, about=tells)
    denied = Forbidden("list", "deployments.apps", message='"eve" cannot list "deployments"')
    found = bad(findings(msgspec.structs.replace(facts, deployments=denied)))
    assert [(each.check, each.level) for each in found] == [
        ("files", "unknown"),
        ("globalmanager", "unknown"),
        ("certificates", "unknown"),
        ("node certificates", "unknown"),
    ]
    assert "eve" in found[0].message
    assert "administrator" in found[0].remedy


async def test_what_a_check_told_stays_when_a_right_is_missing(
    installation: Installation,
) -> None:
    await installation.set_status(DEPLOYMENTS, MANAGER, availableReplicas=0)
    facts = await gather(installation.kube, NAMESPACE, now=lambda: NOW, about=tells)
    denied = Forbidden("list", "pods", message='"eve" cannot list "pods"')
    found = bad(findings(msgspec.structs.replace(facts, pods=denied)))
    levels = {each.check: each.level for each in found}
    assert levels == {"globalmanager": "error", "edges": "unknown"}


async def test_a_controller_outside_kubernetes_is_known_by_its_session(
    cluster: LocalApi, installation: Installation
) -> None:
    await installation.delete(PODS, "localcontroller-edge1")
    assert bad(await found_at(cluster)) == []


async def test_definitions_of_a_group_that_is_not_served_are_not_looked_at(
    cluster: LocalApi, installation: Installation
) -> None:
    """Kubeflow's operator may own those of kubeflow.org."""
    await installation.delete(DEFINITIONS, "tfjobs.kubeflow.org")
    assert [each.check for each in bad(await found_at(cluster))] == ["definitions"]
    container = {"name": MANAGER, "image": "edgeai/any", "args": ["--groups", "edgeai.io,sedna.io"]}
    template = {"spec": {"containers": [container]}}
    await installation.change(DEPLOYMENTS, MANAGER, {"spec": {"template": template}})
    assert bad(await found_at(cluster)) == []


@pytest.mark.parametrize(
    ("ahead_s", "words"), [(3600, "3600 s ahead of the API"), (-90, "90 s behind the API")]
)
async def test_a_wrong_clock_of_this_machine_is_named_and_takes_no_leader_away(
    cluster: LocalApi, installation: Installation, ahead_s: int, words: str
) -> None:
    """By this machine's clock the Leases are an hour old, or from the future."""
    found = await diagnose(
        cluster.kubeconfig,
        NAMESPACE,
        now=lambda: NOW + timedelta(seconds=ahead_s),
        about=tells,
    )
    (finding,) = bad(found)
    assert (finding.check, finding.level) == ("clocks", "warning")
    assert f"this machine's clock is {words} server's" in finding.message


@pytest.mark.parametrize(
    ("version", "level"),
    [
        (Version(1, 29), "error"),
        (Version(1, 30), "ok"),
        (Version(2, 0), "ok"),
        (Version(0, 0), "ok"),
        (None, "ok"),
    ],
)
async def test_an_old_kubernetes_is_named(
    cluster: LocalApi, installation: Installation, version: Version | None, level: str
) -> None:
    async def old(_client: UserClient) -> About:
        return About(version, None)

    (finding,) = [each for each in await found_at(cluster, about=old) if each.check == "kubernetes"]
    assert finding.level == level
    assert ("older than 1.30" in finding.message) == (level == "error")


async def test_a_namespace_that_is_not_there_is_named(
    cluster: LocalApi, installation: Installation
) -> None:
    (finding,) = bad(await found_at(cluster, "elsewhere"))
    assert "namespace elsewhere does not exist" in finding.message
    assert "--namespace" in finding.remedy


async def test_a_quota_that_lets_no_pod_in_is_named(
    cluster: LocalApi, installation: Installation
) -> None:
    failure = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: small"}
    status = {"availableReplicas": 0, "conditions": [failure]}
    await installation.set_status(DEPLOYMENTS, MANAGER, **status)
    finding, *_ = bad(await found_at(cluster))
    assert (finding.check, "exceeded quota: small" in finding.message) == ("globalmanager", True)


@pytest.mark.parametrize("namespace", ["", "..", "a/../b", "x?y"])
async def test_a_namespace_that_is_no_name_is_refused(cluster: LocalApi, namespace: str) -> None:
    (finding,) = await found_at(cluster, namespace)
    assert (finding.check, finding.level) == ("api", "error")
    assert "namespace" in finding.message


async def test_a_server_that_is_no_kubernetes_is_named(tmp_path: Path) -> None:
    async def page(_request: web.Request) -> web.Response:
        return web.Response(status=403, text="<html>no</html>", content_type="text/html")

    async with serve_scripted() as api:
        api.others = [page]
        kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", api.url)
        (finding,) = await diagnose(kubeconfig, NAMESPACE)
    assert (finding.check, finding.level) == ("api", "error")


async def test_an_api_that_is_away_is_the_only_finding(cluster: LocalApi) -> None:
    await cluster.stop()
    (finding,) = await found_at(cluster)
    assert (finding.check, finding.level) == ("api", "error")
    assert "Connect call failed" in finding.message


async def test_a_credential_that_the_api_does_not_know_is_named(
    cluster: LocalApi, tmp_path: Path
) -> None:
    stranger = write_kubeconfig(tmp_path / "stranger", cluster.url, "guess")
    (finding,) = await diagnose(stranger, NAMESPACE)
    assert (finding.check, finding.level) == ("api", "error")
    assert "renew the credential" in finding.remedy
    assert "guess" not in str(finding)


async def test_a_kubeconfig_that_is_not_there_is_named(tmp_path: Path) -> None:
    (finding,) = await diagnose(tmp_path / "none", NAMESPACE)
    assert str(tmp_path / "none") in finding.message


def kubeconfig_with(path: Path, user: dict[str, Any]) -> Path:
    write_kubeconfig(path, "http://127.0.0.1:9")
    content = yaml.safe_load(path.read_text())
    content["users"][0]["user"] = user
    path.write_text(yaml.safe_dump(content))
    return path


DIAGNOSE: Final = """
import asyncio, sys
from pathlib import Path
from edgeai.cli.doctor.diagnosis import as_json, diagnose
print(as_json(asyncio.run(diagnose(Path(sys.argv[1]), sys.argv[2], deadline_s=0.5))))
"""


def test_a_plugin_that_hangs_is_named_and_ended(tmp_path: Path) -> None:
    """In a process of its own, as the command is."""
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": "sh",
        "args": ["-c", f"echo $$ > {tmp_path}/pid; exec sleep 1000"],
    }
    kubeconfig = kubeconfig_with(tmp_path / "kubeconfig", {"exec": plugin})
    done = subprocess.run(
        [sys.executable, "-c", DIAGNOSE, str(kubeconfig), NAMESPACE],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    (finding,) = json.loads(done.stdout)
    assert (finding["check"], finding["level"]) == ("api", "error")
    assert "the exec plugin" in finding["message"]
    assert "within 0.5 s" in finding["message"]
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()


async def test_a_kubeconfig_that_is_a_pipe_is_named(tmp_path: Path) -> None:
    """To read it would wait for a writer."""
    os.mkfifo(tmp_path / "pipe")
    (finding,) = await diagnose(tmp_path / "pipe", NAMESPACE)
    assert "is no file" in finding.message


@pytest.mark.parametrize("token", ["two\nlines", "line\r", "tab\t", "nul\x00"])
async def test_a_token_with_a_line_break_is_named(tmp_path: Path, token: str) -> None:
    kubeconfig = kubeconfig_with(tmp_path / "kubeconfig", {"token": token})
    (finding,) = await diagnose(kubeconfig, NAMESPACE)
    assert "its token has a line break" in finding.message
    assert token not in finding.message


# ---- the command ----


async def test_the_command_prints_the_findings_and_fails_for_an_error(
    cluster: LocalApi, installation: Installation, tmp_path: Path
) -> None:
    where = ("--kubeconfig", str(cluster.kubeconfig), "--state-dir", str(tmp_path / "none"))
    await installation.renew()
    code, text = await run("doctor", *where)
    assert (code, "error" in text) == (0, False), text
    await installation.change(DEPLOYMENTS, MANAGER, {"spec": {"replicas": 0}})
    code, text = await run("doctor", *where)
    assert code == 1
    assert "scaled to 0" in text
    assert "kubectl -n edgeai-system scale deployment" in text
    code, text = await run("doctor", *where, "-o", "json")
    found: list[dict[str, Any]] = json.loads(text)
    assert code == 1
    assert {each["check"] for each in found} == {"api", *CHECKS}
    assert set(found[0]) == {"check", "level", "message", "remedy"}


async def run(*arguments: str) -> tuple[int, str]:
    done = await asyncio.to_thread(edgeai, *arguments)
    return done.returncode, done.stdout


def test_the_kubeconfig_is_the_given_one_or_the_environments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert kubeconfig_of(None, tmp_path / "none") == tmp_path / ".kube" / "config"
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "named"))
    assert kubeconfig_of(None, tmp_path / "none") == tmp_path / "named"
    assert kubeconfig_of(tmp_path / "given", tmp_path / "none") == tmp_path / "given"
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(("a", "b")))
    with pytest.raises(SettingsError, match="--kubeconfig"):
        kubeconfig_of(None, tmp_path / "none")


def test_of_two_claims_for_a_node_the_newer_counts() -> None:
    """Its older session may not have ended yet, and has shown the certificate before the last."""
    names = ("globalmanager-a", "globalmanager-b")
    leases = [{"metadata": {"name": each}, "spec": lease(each)} for each in names]
    for first, second in ((1, 2), (2, 1)):
        told = [{NodeName("edge0"): Claim(order, 0, "a", 0, order)} for order in (first, second)]
        maps = [
            {"metadata": {"name": name, "labels": {REPLICA_LABEL: name}}, "data": {"claims": text}}
            for name, text in zip(names, map(claims.encode, told), strict=True)
        ]
        assert nodes_served(leases, maps, NOW)[NodeName("edge0")].certificate_end == 2


async def test_a_certificate_of_a_node_that_lasts_is_not_told(
    cluster: LocalApi, installation: Installation
) -> None:
    await node_ends_soon(installation)
    (told,) = bad(await found_at(cluster))
    assert "edge0" in told.message
    assert "--certificates DIR" in told.remedy
