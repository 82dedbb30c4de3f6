"""Identity by ServiceAccount token against the real API server: its tokens, its TokenReviews."""

import contextlib
import json
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from common import wire
from common.session import Timing
from common.wire import AUDIENCE
from edgeai.cli.api import Object
from edgeai.errors import Overloaded, Unavailable
from edgeai.kube.client import KubeClient
from globalmanager.edge.identity.handshake import Handshake, Unauthenticated
from globalmanager.edge.identity.service_accounts import (
    ReviewLimits,
    ServiceAccount,
    ServiceAccountAuthenticator,
)
from globalmanager.tokenreviews import TokenReviews
from tests.cluster.controlplane import ControlPlane
from tests.cluster.programs import Program
from tests.globalmanager.edge.world import EdgeSide, dial
from tests.support.certificates import Authority, Pair
from tests.support.client import Client
from tests.support.manager import GlobalManager
from tests.support.ports import free_port
from tests.support.waiting import async_eventually

NODE: Final = "edge0"
ACCOUNT: Final = "localcontroller"
MANAGER: Final = "globalmanager"
RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
LIFETIME_S: Final = 600  # the least that the API server grants
QUICKLY_S: Final = 0.1  # between two reviews of a session
# No test says Hello, and an API server remembers a good token for 10 s.
PATIENT: Final = Timing(opening_s=60, beat_s=60, silence_s=120)
FRESH: Final = ReviewLimits(good_s=0.001, bad_s=0.001)  # nothing is remembered


class Tenant:
    """A namespace with the two ServiceAccounts, and what tests do there as admin."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self.namespace = namespace
        for name in (ACCOUNT, MANAGER, "somebody"):
            self._create("v1", "ServiceAccount", name)

    def grant(self) -> None:
        """The right that the GlobalManager needs to tell who a node is, and no other."""
        reviews = _rule("authentication.k8s.io", "tokenreviews", "create")
        self._grant("ClusterRole", "", f"{self.namespace}-reviews", reviews)

    def _grant(self, kind: str, scope: str, name: str, rule: Object) -> None:
        subject = {"kind": "ServiceAccount", "name": MANAGER, "namespace": self.namespace}
        role = {"metadata": {"name": name}, "rules": [rule]}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
        binding = {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
        self._client.request("POST", f"{RBAC}/{scope}{kind.lower()}s", role)
        self._client.request("POST", f"{RBAC}/{scope}{kind.lower()}bindings", binding)

    def pod(self, name: str = "lc", *, account: str = ACCOUNT, node: str = NODE) -> Object:
        """A LocalController's, on `node`; "": nowhere."""
        where = {"nodeName": node} if node else {"nodeSelector": {"no": "such"}}
        container = {"name": "localcontroller", "image": "registry.test/localcontroller"}
        return self._create(
            "v1",
            "Pod",
            name,
            spec={
                "serviceAccountName": account,
                "automountServiceAccountToken": False,
                "containers": [container],
                **where,
            },
        )

    def kill(self, pod: Object) -> None:
        """No kubelet confirms its end, so it ends at once."""
        self._client.request("DELETE", self._path(pod), {"gracePeriodSeconds": 0})

    def token(
        self,
        pod: Object | None,
        *,
        account: str = ACCOUNT,
        audiences: tuple[str, ...] = (AUDIENCE,),
    ) -> str:
        """A projected token; one for no audience is for the API server."""
        spec: dict[str, Any] = {"expirationSeconds": LIFETIME_S, "audiences": audiences}
        if pod is not None:
            metadata = pod["metadata"]
            bound = {"name": metadata["name"], "uid": metadata["uid"]}
            spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", **bound}
        return self._client.account_token(self.namespace, account, **spec)

    def _create(self, api_version: str, kind: str, name: str, **fields: Any) -> Object:
        metadata = {"name": name, "namespace": self.namespace}
        return self._client.create(
            {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}
        )

    def _path(self, pod: Object) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}"

    def withdraw(self) -> None:
        """What `grant` granted for the whole cluster."""
        for plural in ("clusterroles", "clusterrolebindings"):
            self._client.delete(f"{RBAC}/{plural}/{self.namespace}-reviews")


def _rule(group: str, resource: str, verb: str) -> Object:
    return {"apiGroups": [group], "resources": [resource], "verbs": [verb]}


@pytest.fixture
def tenant(client: Client, namespace: str, nodes: tuple[str, ...]) -> Any:
    assert NODE in nodes
    tenant = Tenant(client, namespace)
    yield tenant
    tenant.withdraw()


@pytest.fixture
async def reviews(
    control_plane: ControlPlane, tenant: Tenant, tmp_path: Path
) -> AsyncIterator[TokenReviews]:
    """What the GlobalManager may ask with the rights of its ServiceAccount."""
    kubeconfig = yaml.safe_load(control_plane.kubeconfig.read_text())
    kubeconfig["users"][0]["user"] = {"token": tenant.token(None, account=MANAGER, audiences=())}
    path = tmp_path / "kubeconfig"
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(kubeconfig))
    async with await KubeClient.from_kubeconfig(path) as kube:
        yield TokenReviews(kube)


@pytest.fixture
def authenticator(tenant: Tenant, reviews: TokenReviews) -> ServiceAccountAuthenticator:
    tenant.grant()
    return ServiceAccountAuthenticator(
        reviews, ServiceAccount(tenant.namespace, ACCOUNT), limits=FRESH
    )


def shown(token: str) -> Handshake:
    return Handshake(f"Bearer {token}", NODE, "127.0.0.1")


async def refusal(authenticator: ServiceAccountAuthenticator, token: str) -> str:
    with pytest.raises(Unauthenticated) as raised:
        await authenticator.authenticate(shown(token))
    assert token not in str(raised.value)
    return raised.value.reason


async def test_a_projected_token_gives_the_node_of_its_pod(
    authenticator: ServiceAccountAuthenticator, tenant: Tenant
) -> None:
    token = tenant.token(tenant.pod())
    assert await authenticator.authenticate(shown(token)) == NODE
    assert await authenticator.review(shown(token)) == NODE


async def test_no_other_token_of_the_cluster_is_good(
    authenticator: ServiceAccountAuthenticator, tenant: Tenant
) -> None:
    pod = tenant.pod()
    good = tenant.token(pod)
    other = tenant.pod("other", account="somebody")
    nowhere = tenant.pod("nowhere", node="")
    reasons = {
        "for the API": await refusal(authenticator, tenant.token(pod, audiences=())),
        "another audience": await refusal(authenticator, tenant.token(pod, audiences=("x",))),
        "another account": await refusal(authenticator, tenant.token(other, account="somebody")),
        "no pod": await refusal(authenticator, tenant.token(None)),
        "unscheduled": await refusal(authenticator, tenant.token(nowhere)),
        "forged": await refusal(authenticator, good[:-8] + "AAAAAAAA"),
    }
    assert {case: reason[:40] for case, reason in reasons.items()} == {
        "for the API": f"the token is not for the audience {AUDIENCE}"[:40],
        "another audience": f"the token is not for the audience {AUDIENCE}"[:40],
        "another account": f"the token is not of system:serviceaccount:{tenant.namespace}"[:40],
        "no pod": "the token is bound to no pod; it must be a projected one"[:40],
        "unscheduled": "the token names no node: its pod was on none"[:40],
        "forged": "the cluster rejects the token: [invalid bearer token"[:40],
    }


async def test_the_server_itself_refuses_a_token_for_another_audience(
    authenticator: ServiceAccountAuthenticator, tenant: Tenant, reviews: TokenReviews
) -> None:
    """So what a token says of itself only spares it the question."""
    del authenticator  # it has the rights granted
    pod = tenant.pod()
    for audiences in ((), ("x",)):
        status = await reviews.review_token(tenant.token(pod, audiences=audiences), AUDIENCE)
        assert not status.get("authenticated")


async def test_the_token_of_a_pod_that_is_gone_is_no_longer_good(
    authenticator: ServiceAccountAuthenticator, tenant: Tenant
) -> None:
    pod = tenant.pod()
    token = tenant.token(pod)
    assert await authenticator.authenticate(shown(token)) == NODE
    tenant.kill(pod)
    tenant.pod()  # of the same name

    async def reason() -> str:
        """The API server itself remembers a good token for 10 s."""
        try:
            await authenticator.authenticate(shown(token))
        except Overloaded:  # of so many questions
            return ""
        except Unauthenticated as error:
            return str(error)
        return ""

    assert "the cluster rejects the token" in await async_eventually("a refusal", reason)


async def test_without_the_right_to_ask_no_verdict_is_given(
    tenant: Tenant, reviews: TokenReviews
) -> None:
    """Not granted: a GlobalManager that may not ask must not turn its nodes away for good."""
    account = ServiceAccount(tenant.namespace, ACCOUNT)
    authenticator = ServiceAccountAuthenticator(reviews, account, limits=FRESH)
    with pytest.raises(Unavailable, match=r"create tokenreviews.*403"):
        await authenticator.authenticate(shown(tenant.token(tenant.pod())))


@contextlib.asynccontextmanager
async def serving(
    tmp_path: Path, authenticator: ServiceAccountAuthenticator
) -> AsyncIterator[EdgeSide]:
    world = EdgeSide(
        tmp_path / "tokens", authenticator=authenticator, review_s=QUICKLY_S, timing=PATIENT
    )
    async with world.running():
        yield world


async def test_a_session_ends_with_its_pod(
    authenticator: ServiceAccountAuthenticator, tenant: Tenant, tmp_path: Path
) -> None:
    pod, other = tenant.pod(), tenant.pod("other", node="cloud0")
    async with (
        serving(tmp_path, authenticator) as world,
        dial(world.url, tenant.token(pod)) as websocket,
        dial(world.url, tenant.token(other)) as stays,
    ):

        def good() -> float:
            return world.sample("edgeai_edge_reviews_total", outcome="good")

        await async_eventually("good() >= 4", lambda: good() >= 4)
        assert websocket.close_code is None
        tenant.kill(pod)
        await async_eventually(
            "a revoked session",
            lambda: websocket.close_code == wire.Close.REVOKED,
        )
        seen = good()
        await async_eventually("good() >= seen + 2", lambda: good() >= seen + 2)
        assert stays.close_code is None


async def test_a_right_that_is_taken_away_ends_no_session(
    authenticator: ServiceAccountAuthenticator, tenant: Tenant, tmp_path: Path
) -> None:
    async with (
        serving(tmp_path, authenticator) as world,
        dial(world.url, tenant.token(tenant.pod())) as websocket,
    ):

        def reviewed(outcome: str) -> float:
            return world.sample("edgeai_edge_reviews_total", outcome=outcome)

        await async_eventually("reviewed('good') >= 1", lambda: reviewed("good") >= 1)
        tenant.withdraw()
        await async_eventually("reviewed('unavailable') >= 2", lambda: reviewed("unavailable") >= 2)
        assert websocket.close_code is None


# ---- both as processes, over TLS ---------------------------------------------------------------


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Authority, Pair]:
    authority = Authority(tmp_path)
    return authority, authority.issue("gm", alternative="IP:127.0.0.1", usage="serverAuth")


@pytest.fixture
def global_manager(
    control_plane: ControlPlane, tenant: Tenant, tmp_path: Path, keys: tuple[Authority, Pair]
) -> Iterator[GlobalManager]:
    """One for the tenant's namespace alone."""
    _, (certificate, key) = keys
    manager = GlobalManager(
        kubeconfig=control_plane.kubeconfig,
        system_namespace=tenant.namespace,
        directory=tmp_path,
        flags=(
            *("--namespace", tenant.namespace, "--edge-auth", "serviceaccount"),
            *("--edge-service-account", f"{tenant.namespace}/{ACCOUNT}"),
            *("--edge-plaintext", "refuse", "--edge-review-s", "0.2"),
            *("--edge-tls-certificate", str(certificate), "--edge-tls-key", str(key)),
        ),
    )
    with manager.running():
        yield manager


def test_a_local_controller_is_let_in_by_its_pods_token_until_the_pod_is_gone(
    global_manager: GlobalManager, tenant: Tenant, tmp_path: Path, keys: tuple[Authority, Pair]
) -> None:
    pod = tenant.pod()
    token = tmp_path / "token"
    token.write_text(tenant.token(pod))
    status_port = free_port()
    controller = Program(
        [
            *(sys.executable, "-m", "localcontroller", "--node-name", NODE),
            *("--global-manager", f"wss://{global_manager.edge_address}"),
            *("--token-file", str(token), "--ca-file", str(keys[0].certificate)),
            *("--state-dir", str(tmp_path / "state"), "--worker-address", "127.0.0.1:0"),
            *("--status-address", f"127.0.0.1:{status_port}", "--reconnect-max-s", "1"),
        ],
        log=tmp_path / "localcontroller.log",
    )

    def link() -> Object:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{status_port}/api/v1/link") as answer:
                state: Object = json.load(answer)
                return state
        except OSError:
            return {}

    controller.start()
    try:
        controller.eventually("a session", lambda: link().get("connected"))
        tenant.kill(pod)
        controller.eventually(
            "the end of the credential", lambda: "401" in link().get("lastError", "")
        )
        token.write_text(tenant.token(tenant.pod("lc-again")))
        controller.eventually("a session by the new token", lambda: link().get("connected"))
    finally:
        controller.stop()
    for log in (tmp_path / "localcontroller.log", tmp_path / "globalmanager.log"):
        assert token.read_text() not in log.read_text()
    assert "no longer good" in (tmp_path / "globalmanager.log").read_text()
