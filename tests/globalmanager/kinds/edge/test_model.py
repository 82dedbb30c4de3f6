"""Model: whether its spec is good, which nodes get it, and what they tell of its content."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from common import wire
from edgeai.api.resources import SECRETS, SERVICES, ObjectRef
from edgeai.ids import NodeName
from globalmanager.contract import Assignment, Plan, ReportRefused, ServicePort
from globalmanager.kinds.edge.model import KIND
from globalmanager.kinds.edge.model.fold import ModelFold
from globalmanager.kinds.shared.stored import stored_bytes
from tests.globalmanager.kinds.edge.samples import proposal_service, small_service
from tests.support.world import World, job, report

URL = "https://example.org/small.onnx"
DIGEST = "0a" * 32


def read_model(*nodes: str, **spec: Any) -> World:
    """A Model that workers on these nodes load hot."""
    world = World(KIND, job("small", {"url": URL, **spec}))
    world.readers = dict.fromkeys(map(NodeName, nodes))
    return world.settle()


def assignments_of(world: World) -> Mapping[NodeName, Assignment]:
    return KIND.assignments(world.observed())


def tell(world: World, node: str, *, status: Any = "running", **fields: str) -> None:
    reason = fields.pop("reason", "")
    told = report(worker=f"small-{node}", node=node, status=status, reason=reason, details=fields)
    world.receive(told)
    world.settle()


def model(**spec: Any) -> World:
    return World(KIND, job("small", spec)).settle()


@pytest.mark.parametrize("url", ["/models/small.pb", "s3://bucket/small.pb"])
def test_a_good_model_is_accepted_once(url: str) -> None:
    world = model(url=url, format="pb", device_soc_versions=["Ascend310"])
    assert world.condition("Accepted")["status"] == "True"
    assert world.plan() == Plan()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        pytest.param({}, "spec.url: is missing", id="no url"),
        pytest.param({"url": ""}, "spec.url: has the wrong form", id="empty url"),
        pytest.param({"url": "ftp://x/y"}, "spec.url: scheme of 'ftp://x/y'", id="scheme"),
        pytest.param(
            {"url": "/m/a", "device_soc_versions": 1}, "spec.device_soc_versions: ", id="type"
        ),
    ],
)
def test_a_bad_model_is_reported_with_the_field(spec: dict[str, Any], message: str) -> None:
    world = model(**spec)
    assert world.condition("Accepted")["message"].startswith(message)
    assert world.condition("Accepted")["status"] == "False"


def test_a_corrected_model_is_accepted() -> None:
    world = model(url="nowhere").change({"url": "/models/a"}).settle()
    assert world.condition("Accepted")["status"] == "True"
    assert world.condition("Accepted")["observedGeneration"] == 2


def test_a_model_without_readers_has_no_assignment_and_no_word_of_delivery() -> None:
    world = model(url="/models/a")
    assert world.kind.assignments(world.observed()) == {}
    assert world.status.keys() == {"observedGeneration", "conditions"}
    assert [each["type"] for each in world.status["conditions"]] == ["Accepted"]


def test_the_nodes_that_read_a_model_get_its_url_and_digest() -> None:
    world = read_model("edge0", "edge1", sha256=DIGEST, credentialName="keys")
    bodies = {str(node): each.body for node, each in assignments_of(world).items()}
    assert bodies.keys() == {"edge0", "edge1"}
    excerpt = {"url": URL, "sha256": DIGEST, "credentialName": "keys"}
    assert bodies["edge0"].spec == excerpt
    assert bodies["edge0"].workers == {"small-edge0": wire.THE_NODE_ITSELF}


@pytest.mark.parametrize(
    ("url", "port"),
    [
        ("http://store.default.svc/a.onnx", 80),
        ("https://store.default.svc/a.onnx", 443),
        ("http://STORE.default.svc.cluster.local:8080/a.onnx", 8080),
        ("http://store.other.svc/a.onnx", 0),
        ("http://store.default/a.onnx", 0),
        ("http://default.svc/a.onnx", 0),
        ("http://store.default.svc:99999/a.onnx", 0),
        ("http://169.254.169.254/a.onnx", 0),
        ("http://store.default.svc@example.org/a.onnx", 0),
        ("/models/store.default.svc/a.onnx", 0),
    ],
)
def test_only_a_service_of_the_namespace_is_reached_through_the_relay(url: str, port: int) -> None:
    world = read_model("edge0", url=url)
    (assignment,) = assignments_of(world).values()
    named = {ServicePort("store", port, is_child=False)} if port else set()
    assert assignment.targets == named
    service = ObjectRef(SERVICES, "default", "store")
    assert KIND.references(world.observed()) == ({service} if port else frozenset())


@pytest.mark.parametrize(
    ("annotations", "port"),
    [
        ({"s3_endpoint": "http://minio.default.svc:9000"}, 9000),
        ({"s3_endpoint": "minio.default.svc", "s3_usehttps": "0"}, 80),
        ({"s3_endpoint": "minio.other.svc:9000"}, 0),
        ({"s3_endpoint": "no host"}, 0),
        ({}, 0),
    ],
)
def test_a_secret_names_the_server_of_a_bucket(annotations: dict[str, str], port: int) -> None:
    world = read_model("edge0", url="s3://b/small.onnx", credentialName="keys")
    secret = ObjectRef(SECRETS, "default", "keys")
    assert KIND.references(world.observed()) == {secret}
    assert {each.targets for each in assignments_of(world).values()} == {frozenset()}
    world.secret("keys", **annotations)
    (assignment,) = assignments_of(world).values()
    named = {ServicePort("minio", port, is_child=False)} if port else set()
    assert assignment.targets == named
    found = KIND.indirect_references(world.observed().references)
    assert found == ({ObjectRef(SERVICES, "default", "minio")} if port else frozenset())


def test_the_status_follows_what_the_nodes_tell() -> None:
    world = read_model("edge0", "edge1")
    assert world.condition("Delivered")["reason"] == "Waiting"
    assert (world.status["nodes"], world.status["readyNodes"]) == (2, 0)
    tell(world, "edge0", generation="1", digest=DIGEST)
    tell(world, "edge1", generation="1")
    assert world.condition("Delivered")["reason"] == "Fetching"
    assert (world.status["readyNodes"], world.status["digest"]) == (1, DIGEST)
    asking = report(worker="small-edge1", node="edge1", details={"generation": "1"})
    body = msgspec.structs.replace(asking.body, phase="asking")
    world.receive(msgspec.structs.replace(asking, body=body))
    world.settle()
    assert "edge1 waits for an answer of the server" in world.condition("Delivered")["message"]
    tell(world, "edge1", status="lost", reason="no such file", generation="1", problem="NotFound")
    delivered = world.condition("Delivered")
    assert (delivered["status"], delivered["reason"]) == ("False", "NotFound")
    assert delivered["message"] == "node edge1: no such file"
    tell(world, "edge1", generation="1", digest=DIGEST)
    assert world.condition("Delivered")["status"] == "True"
    assert world.plan() == Plan()


@pytest.mark.parametrize("url", ["htps://example.org/small.onnx", 7, None])
def test_a_wrong_edit_leaves_the_model_on_its_nodes(url: Any) -> None:
    world = read_model("edge0", sha256=DIGEST)
    tell(world, "edge0", generation="1", digest=DIGEST)
    world.change({"url": url, "sha256": DIGEST}).settle()
    assert world.condition("Accepted")["status"] == "False"
    (assignment,) = assignments_of(world).values()
    assert assignment.version == 2
    assert assignment.body.spec.get("url") == (url if isinstance(url, str) else None)


def test_former_nodes_give_their_room_to_new_ones() -> None:
    former = [f"old{number}" for number in range(ModelFold.max_workers)]
    world = read_model(*former)
    for node in former:
        tell(world, node, generation="1", digest=DIGEST)
    world.readers = {NodeName("new"): None}
    world.settle()
    assert world.status.get("workers", {}) == {}
    tell(world, "new", generation="1", digest=DIGEST)
    assert world.condition("Delivered")["status"] == "True"
    assert world.plan() == Plan()
    assert world.status["workers"].keys() == {"small-new"}


def test_a_plan_that_does_not_know_yet_who_reads_takes_no_report_away() -> None:
    world = read_model("edge0")
    tell(world, "edge0", generation="1", digest=DIGEST)
    world.readers = {}
    assert not world.settle().status.keys() & {"nodes", "readyNodes", "digest"}
    assert world.plan() == Plan()
    world.readers = {NodeName("edge0"): None}
    assert world.settle().condition("Delivered")["status"] == "True"


def test_a_node_with_other_content_than_the_spec_names_is_not_ready() -> None:
    world = read_model("edge0", sha256="1b" * 32)
    tell(world, "edge0", generation="1", digest=DIGEST)
    assert world.condition("Delivered")["reason"] == "Fetching"
    assert (world.status["readyNodes"], world.status["digest"]) == (0, "1b" * 32)


def test_what_nodes_told_of_an_earlier_spec_is_not_about_the_new_one() -> None:
    world = read_model("edge0")
    tell(world, "edge0", generation="1", digest=DIGEST)
    world.change({"url": "https://example.org/v2"}).settle()
    assert world.condition("Delivered")["reason"] == "Waiting"
    assert "digest" not in world.status
    assert world.status["readyNodes"] == 0


@pytest.mark.parametrize("problem", ["no word", "x" * 65, "", "é"])
def test_a_node_cannot_write_a_wrong_reason(problem: str) -> None:
    world = read_model("edge0")
    tell(world, "edge0", status="lost", generation="1", problem=problem, digest="../../x")
    assert world.condition("Delivered")["reason"] in ("SourceFailed", "Fetching")
    assert "digest" not in world.status


def test_the_status_of_a_model_for_many_nodes_stays_small() -> None:
    nodes = [f"edge-of-a-long-name-{number}" for number in range(400)]
    world = read_model(*nodes)
    for number, node in enumerate(nodes):
        details = {"generation": "1", "digest": DIGEST, "updateTime": "2026-11-27T10:00:00Z"}
        counts = {"bytes": 10**9, "size": 10**9}
        one = report(worker=f"small-{node}", node=node, counts=counts, details=details)
        if number < ModelFold.max_workers:
            world.receive(one)
        else:
            with pytest.raises(ReportRefused):
                world.receive(one)
    assert stored_bytes(world.settle().status) < 64 * 1024
    assert world.condition("Delivered")["status"] == "Unknown"
    assert (world.status["nodes"], world.status["readyNodes"]) == (400, 100)


@pytest.mark.parametrize("sha256", ["abc", "A" * 64, DIGEST + "0", "../" + "a" * 61])
def test_a_digest_of_another_form_is_refused(sha256: str) -> None:
    assert model(url=URL, sha256=sha256).condition("Accepted")["status"] == "False"


def test_a_model_that_is_being_deleted_has_an_empty_plan() -> None:
    assert model(url="nowhere").delete().plan() == Plan()


@pytest.mark.parametrize("url", ["/root/.ssh/id_rsa", "/root/.ssh", "/etc/shadow", "/home/joe/m"])
def test_a_model_in_a_directory_of_the_system_is_refused_by_name(url: str) -> None:
    accepted = model(url=url).condition("Accepted")
    assert accepted["status"] == "False"
    assert accepted["message"].startswith("spec.url: workers may not have ")
    assert "--node-path-prefixes" in accepted["message"]


def test_a_service_with_such_a_model_makes_nothing_and_names_the_model() -> None:
    world = small_service().model("big", "/root/.ssh/id_rsa").settle()
    assert world.names() == []
    told = world.condition("ResolvedRefs")
    assert told["reason"] == "PathNotAllowed"
    assert "Model default/big (spec.cloudWorker.model.name): spec.url: " in told["message"]
    assert "'/root/.ssh'" in told["message"]


def test_scripts_in_a_directory_of_the_system_are_refused() -> None:
    world = proposal_service()
    world.object["spec"]["edgeWorker"]["workerSpec"]["scriptDir"] = "/etc/cron.d"
    world.settle()
    assert world.names() == []
    told = world.condition("ResolvedRefs")
    assert told["reason"] == "PathNotAllowed"
    assert told["message"].startswith("spec.edgeWorker.workerSpec.scriptDir: workers may not have")


def test_a_prefix_allows_the_directory() -> None:
    world = small_service().model("big", "/root/models/m")
    world.settings = msgspec.structs.replace(world.settings, node_path_prefixes=("/", "/root"))
    assert world.settle().condition("ResolvedRefs")["status"] == "True"
