"""Each installation is broken in one way, on a real API, and the doctor names that way alone."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from edgeai.api.resources import CONFIG_MAPS, DEPLOYMENTS, NODES, PODS, SECRETS, ResourceType
from edgeai.cli.credentials import certificates as made
from edgeai.cli.doctor.diagnosis import CHECKS, diagnose, findings
from edgeai.cli.doctor.edges import nodes_served
from edgeai.cli.doctor.facts import CONTROLLER, DEFINITIONS, MANAGER, AskAbout, gather
from edgeai.cli.doctor.finding import Finding
from edgeai.cli.doctor.mounts import CA
from edgeai.errors import SettingsError
from edgeai.ids import NodeName
from edgeai.kube.errors import Forbidden
from edgeai.kube.user import About, UserClient, Version
from edgeai.kubeconfig import kubeconfig_of
from globalmanager.ha import claims
from globalmanager.ha.claims import Claim
from globalmanager.ha.elector import LEASE_NAME, LEASES, REPLICA_LABEL
from tests.edgeai.cli.command import edgeai
from tests.edgeai.cli.doctor.installation import (
    EDGES,
    NAMESPACE,
    NOW,
    TLS,
    Installation,
    claims_of,
    lease,
)
from tests.edgeai.kube.test_plugin import kubeconfig_with
from tests.globalmanager.cluster import LocalApi
from tests.support.certificates import Authority

CLAIMS: Final = f"{LEASE_NAME}-1"
JOBS: Final = "jointinferenceservices.edgeai.io"
IMAGE: Final = {"reason": "ImagePullBackOff", "message": "no such image edgeai/any"}
Break = Callable[[Installation], Awaitable[object]]


@pytest.fixture
async def installation(tmp_path: Path) -> AsyncIterator[Installation]:
    (tmp_path / "pki").mkdir()
    async with (
        LocalApi(tmp_path, is_installed=True) as api,
        await UserClient.from_kubeconfig(api.kubeconfig) as kube,
    ):
        installation = Installation(kube, api.kubeconfig, tmp_path / "pki")
        await installation.apply()
        yield installation


async def tells(_client: UserClient) -> About:
    return About(Version(1, 34), NOW)


async def found_at(
    it: Installation, namespace: str = NAMESPACE, about: AskAbout = tells, ahead_s: float = 0
) -> list[Finding]:
    now = NOW + timedelta(seconds=ahead_s)
    return await diagnose(it.kubeconfig, namespace, now=lambda: now, about=about)


def bad(found: list[Finding]) -> list[Finding]:
    return [each for each in found if each.level != "ok"]


async def test_of_a_good_installation_all_is_well(installation: Installation) -> None:
    found = await found_at(installation)
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


async def quota(installation: Installation) -> None:
    failure = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: small"}
    status = {"availableReplicas": 0, "conditions": [failure]}
    await installation.set_status(DEPLOYMENTS, MANAGER, **status)


async def no_controller(installation: Installation) -> None:
    await installation.delete(PODS, "localcontroller-edge1")
    await claiming(claims_of("edge0"))(installation)


async def crashing_controller(installation: Installation) -> None:
    await claiming(claims_of("edge0"))(installation)
    waiting = {"reason": "CrashLoopBackOff", "message": "back-off"}
    ended = {"exitCode": 4, "message": "token: gone"}
    container = {"name": CONTROLLER, "state": {"waiting": waiting}}
    container["lastState"] = {"terminated": ended}
    await installation.set_status(PODS, "localcontroller-edge1", containerStatuses=[container])


async def no_edge_nodes(installation: Installation) -> None:
    for node in EDGES:
        await installation.delete(NODES, node)


async def node_ends_soon(installation: Installation) -> None:
    await trusting(400)(installation)
    await installation.show_certificates(edge0=timedelta(days=12), edge1=timedelta(days=31))


async def new_authority(installation: Installation) -> None:
    """Of two days."""
    authority = Authority(installation.directory, "short")
    await installation.certify(authority)
    await having(CONFIG_MAPS, CA, {"ca.crt": authority.certificate.read_text()})(installation)


def without(type_: ResourceType, name: str) -> Break:
    return lambda it: it.delete(type_, name)


def having(type_: ResourceType, name: str, data: dict[str, str]) -> Break:
    return lambda it: it.change(type_, name, {"data": data})


def claiming(claims: str) -> Break:
    return having(CONFIG_MAPS, CLAIMS, {"claims": claims})


def certified(days: int) -> Break:
    return lambda it: it.certify(it.authority, timedelta(days=days))


def trusting(*days: int) -> Break:
    """Authorities of the nodes that last so long."""
    begins = [NOW + timedelta(days=each) - made.AUTHORITY_LASTS for each in days]
    return lambda it: it.trust(*(made.new_authority(each).certificate for each in begins))


def renewed(name: str, ago_s: float, holder: str = "globalmanager-a_1") -> Break:
    spec = lease(holder, renewed_ago_s=ago_s)
    return lambda it: it.change(LEASES, name, {"spec": spec})


# Check and level -> what is broken -> how, and words of the message and the remedy.
BROKEN: Final[dict[tuple[str, str], dict[str, tuple[Break, str]]]] = {
    ("definitions", "error"): {
        "no definition at all": (without_definitions, "no Custom"),
        "one definition is missing": (without(DEFINITIONS, JOBS), f"{JOBS} is not installed"),
        "a definition of an older release": (without_a_field, "has no field .spec.edgeWorker"),
    },
    ("globalmanager", "error"): {
        "no GlobalManager": (without(DEPLOYMENTS, MANAGER), f"in namespace {NAMESPACE}"),
        "no room for the GlobalManager": (no_room, "Insufficient memory"),
        "a quota that lets no pod in": (quota, "exceeded quota: small"),
    },
    ("globalmanager", "warning"): {"no image": (no_image, IMAGE["message"])},
    ("leader", "error"): {
        "no leader": (renewed(LEASE_NAME, 1, holder=""), "no GlobalManager leads"),
        "a leader that is silent": (renewed(LEASE_NAME, 31), "for 31 s"),
    },
    ("clocks", "warning"): {"a clock that is ahead": (renewed(CLAIMS, -90), "90 s ahead")},
    ("files", "error"): {
        "no Secret": (without(SECRETS, TLS), f"Secret {NAMESPACE}/{TLS} is missing"),
        "no CA": (without(CONFIG_MAPS, CA), f"ConfigMap {NAMESPACE}/{CA} is missing"),
    },
    ("certificates", "error"): {
        "one that has ended": (certified(-1), "ended at"),
        "one that begins later": (certified(120), "valid only from"),
        "one of another CA of the same name": (
            lambda it: it.certify(Authority(it.directory, "other")),
            "has no such CA",
        ),
        "a CA that is none": (
            having(CONFIG_MAPS, CA, {"ca.crt": "nothing"}),
            "ca.crt cannot be read",
        ),
        "one that is none": (
            having(SECRETS, TLS, {"tls.crt": "bm90aGluZw=="}),
            "tls.crt cannot be read",
        ),
    },
    ("certificates", "warning"): {
        "one that ends soon": (certified(10), "ends at"),
        "a CA that ends soon": (new_authority, "CN=test-ca ends at"),
    },
    ("node certificates", "error"): {
        "a CA that has ended": (trusting(-1), "so no node gets a session"),
        "a CA that is none": (lambda it: it.trust("nothing"), "ca.crt cannot be read"),
    },
    ("node certificates", "warning"): {
        "a CA that ends soon": (trusting(-1, 19, 400), "CN=edgeai CA ends in 19 days"),
        "one that ends soon": (
            node_ends_soon,
            "edge0, or its CA, ends in 12 days*--certificates DIR",
        ),
    },
    ("edges", "error"): {
        "no LocalController": (no_controller, "no LocalController on edge1"),
        "no session": (claiming(claims_of("edge0")), "edge1 has no session"),
        "a GlobalManager that died": (renewed(CLAIMS, 31), "edge0 has no session"),
        "a LocalController that crashes": (crashing_controller, "token: gone"),
        "claims that nobody can read": (claiming("?"), "cannot be read"),
        "claims that are no ASCII": (claiming("ü"), "cannot be read"),
    },
    ("edges", "warning"): {"no edge node": (no_edge_nodes, "=> kubectl label node")},
}
CASES: Final = [
    pytest.param(*where, *how, id=f"{where[0]}: {name}")
    for where, ways in BROKEN.items()
    for name, how in ways.items()
]


@pytest.mark.parametrize(("check", "level", "break_it", "words"), CASES)
async def test_a_broken_installation_is_named(
    installation: Installation, check: str, level: str, break_it: Break, words: str
) -> None:
    await break_it(installation)
    finding, *others = bad(await found_at(installation))
    assert all(each.check == check == "edges" for each in others), "one for each node, no more"
    assert (finding.check, finding.level) == (check, level)
    assert fnmatchcase(f"{finding.message} => {finding.remedy}", f"*{words}*")
    assert finding.remedy


async def test_many_nodes_without_session_are_counted(installation: Installation) -> None:
    for number in range(2, 9):
        await installation.add_edge(f"edge{number}")
        await installation.add_pod(f"localcontroller-edge{number}", CONTROLLER, f"edge{number}")
    messages = [each.message for each in bad(await found_at(installation))]
    assert len(messages) == 6
    assert messages[-1] == "2 further edge nodes have no session"


async def found_without_right_to(type_: ResourceType, installation: Installation) -> list[Finding]:
    facts = await gather(installation.kube, NAMESPACE, now=lambda: NOW, about=tells)
    denied = Forbidden("list", str(type_), message=f'"eve" cannot list "{type_}"')
    return bad(findings(msgspec.structs.replace(facts, objects={**facts.objects, type_: denied})))


async def test_what_the_caller_may_not_read_is_unknown_and_hides_nothing_else(
    installation: Installation,
) -> None:
    found = await found_without_right_to(DEPLOYMENTS, installation)
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
    found = await found_without_right_to(PODS, installation)
    levels = {each.check: each.level for each in found}
    assert levels == {"globalmanager": "error", "edges": "unknown"}


async def test_a_controller_outside_kubernetes_is_known_by_its_session(
    installation: Installation,
) -> None:
    await installation.delete(PODS, "localcontroller-edge1")
    assert bad(await found_at(installation)) == []


async def test_definitions_of_a_group_that_is_not_served_are_not_looked_at(
    installation: Installation,
) -> None:
    """Kubeflow's operator may own those of kubeflow.org."""
    await installation.delete(DEFINITIONS, "tfjobs.kubeflow.org")
    assert [each.check for each in bad(await found_at(installation))] == ["definitions"]
    container = {"name": MANAGER, "image": "edgeai/any", "args": ["--groups", "edgeai.io,sedna.io"]}
    template = {"spec": {"containers": [container]}}
    await installation.change(DEPLOYMENTS, MANAGER, {"spec": {"template": template}})
    assert bad(await found_at(installation)) == []


@pytest.mark.parametrize(
    ("ahead_s", "words"), [(3600, "3600 s ahead of the API"), (-90, "90 s behind the API")]
)
async def test_a_wrong_clock_of_this_machine_is_named_and_takes_no_leader_away(
    installation: Installation, ahead_s: int, words: str
) -> None:
    """By this machine's clock the Leases are an hour old, or from the future."""
    (finding,) = bad(await found_at(installation, ahead_s=ahead_s))
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
    installation: Installation, version: Version | None, level: str
) -> None:
    async def old(_client: UserClient) -> About:
        return About(version, None)

    (finding,) = [
        each for each in await found_at(installation, about=old) if each.check == "kubernetes"
    ]
    assert finding.level == level
    assert ("older than 1.30" in finding.message) == (level == "error")


async def test_a_namespace_that_is_not_there_is_named(installation: Installation) -> None:
    (finding,) = bad(await found_at(installation, "elsewhere"))
    assert "namespace elsewhere does not exist" in finding.message
    assert "--namespace" in finding.remedy


@pytest.mark.parametrize("namespace", ["", "..", "a/../b", "x?y"])
async def test_a_namespace_that_is_no_name_is_refused(tmp_path: Path, namespace: str) -> None:
    (finding,) = await diagnose(tmp_path / "none", namespace)
    assert (finding.check, finding.level) == ("api", "error")
    assert f"namespace {namespace!r} is invalid" in finding.message


DIAGNOSE: Final = """
import asyncio, sys
from pathlib import Path
from edgeai.cli.doctor.diagnosis import diagnose
from edgeai.cli.options import print_json
print_json(asyncio.run(diagnose(Path(sys.argv[1]), sys.argv[2], deadline_s=0.5)))
"""


def test_a_plugin_that_hangs_is_named_and_ended(tmp_path: Path) -> None:
    """In a process of its own, as the command is."""
    script = f"echo $$ > {tmp_path}/pid; exec sleep 1000"
    kubeconfig = kubeconfig_with(tmp_path / "kubeconfig", script)
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


# ---- the command ----


async def test_the_command_prints_the_findings_and_fails_for_an_error(
    installation: Installation, tmp_path: Path
) -> None:
    where = ("--kubeconfig", str(installation.kubeconfig), "--state-dir", str(tmp_path / "none"))
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
    (error,) = (each for each in found if each["level"] == "error")
    assert error["check"] == "globalmanager"
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
