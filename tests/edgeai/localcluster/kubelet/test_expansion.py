"""Variables, mount paths and Service names in what a container is given."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeai.localcluster.kubelet.expansion import (
    Endpoint,
    HostRewriter,
    PathRewriter,
    ServiceHost,
    expand,
)


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        pytest.param("$(A)", "1", id="defined"),
        pytest.param("$(B)", "$(B)", id="undefined stays as it is"),
        pytest.param("$$(A)", "$(A)", id="escaped"),
        pytest.param("$$$(A)", "$1", id="escaped dollar, then a variable"),
        pytest.param("$$$$(A)", "$$(A)", id="two escaped dollars"),
        pytest.param("a$(A)b$(A)", "a1b1", id="several"),
        pytest.param("$(A", "$(A", id="unclosed"),
        pytest.param("$A ${A}", "$A ${A}", id="the shell's forms are not ours"),
        pytest.param("$", "$", id="lone dollar"),
        pytest.param("$()", "$()", id="empty name"),
        pytest.param("$(N)", "$(A)", id="values are not expanded again"),
        pytest.param("$(a.b-c)", "dotted", id="names with dots and dashes"),
    ],
)
def test_expansion_follows_kubernetes(text: str, expanded: str) -> None:
    assert expand(text, {"A": "1", "N": "$(A)", "a.b-c": "dotted"}) == expanded


@given(st.text(alphabet="ab ()"))
def test_text_without_dollar_is_never_changed(text: str) -> None:
    assert expand(text, {"a": "x", "b": "y"}) == text


MOUNTS = {"/home/data": "/p/root/home/data", "/home/data/sub": "/p/n/sub", "/m/": "/p/root/m"}


@pytest.mark.parametrize(
    ("text", "rewritten"),
    [
        pytest.param("/home/data", "/p/root/home/data", id="the mount itself"),
        pytest.param("/home/data/x.pkl", "/p/root/home/data/x.pkl", id="below it"),
        pytest.param("/home/data/sub/x", "/p/n/sub/x", id="the longest mount wins"),
        pytest.param("/home/database/x", "/home/database/x", id="not a longer name"),
        pytest.param("/home/data.old", "/home/data.old", id="not a name with an ending"),
        pytest.param("/home/data-2", "/home/data-2", id="not a name with a dash"),
        pytest.param("/srv/home/data/x", "/srv/home/data/x", id="not inside a longer path"),
        pytest.param("home/data", "home/data", id="not a relative path"),
        pytest.param("--model=/home/data/x", "--model=/p/root/home/data/x", id="after ="),
        pytest.param("/home/data:/m", "/p/root/home/data:/p/root/m", id="path lists"),
        pytest.param('{"u":"/home/data/x"}', '{"u":"/p/root/home/data/x"}', id="JSON"),
        pytest.param("file:///home/data/x", "file:///p/root/home/data/x", id="file URL"),
        pytest.param("s3://home/data/x", "s3://home/data/x", id="not another URL's host"),
        pytest.param("http://h/home/data", "http://h/home/data", id="not another URL's path"),
        pytest.param("$(X)/home/data", "$(X)/home/data", id="not after an unknown variable"),
        pytest.param("/m;/home/data", "/p/root/m;/p/root/home/data", id="; lists"),
        pytest.param("cat /m/a /m/b", "cat /p/root/m/a /p/root/m/b", id="shell scripts"),
    ],
)
def test_mount_paths_become_real_ones(text: str, rewritten: str) -> None:
    assert PathRewriter(MOUNTS)(text) == rewritten


def test_paths_that_were_rewritten_stay() -> None:
    rewriter = PathRewriter(MOUNTS)
    assert rewriter(rewriter("/home/data/x")) == "/p/root/home/data/x"


SERVICES = [
    ServiceHost("big", "default", "10.0.0.1"),
    ServiceHost("big", "other", "10.0.0.2"),
    ServiceHost("big-cloud", "default", "10.0.0.3"),
]


@pytest.mark.parametrize(
    ("text", "rewritten"),
    [
        pytest.param("big.default", "10.0.0.1", id="with namespace"),
        pytest.param("big.other", "10.0.0.2", id="of another namespace"),
        pytest.param("big.default.svc", "10.0.0.1", id="svc"),
        pytest.param("big.default.svc.cluster.local", "10.0.0.1", id="fully qualified"),
        pytest.param("big-cloud.default:50", "10.0.0.3:50", id="with port"),
        pytest.param("http://big.default:50/v1", "http://10.0.0.1:50/v1", id="URL"),
        pytest.param("http://big/v1", "http://10.0.0.1/v1", id="bare name in a URL"),
        pytest.param("http://big", "http://10.0.0.1", id="bare name ends a URL"),
        pytest.param("big:5000", "10.0.0.1:5000", id="bare name before a port"),
        pytest.param('["big.default.svc:1"]', '["10.0.0.1:1"]', id="JSON"),
        pytest.param("big", "big", id="a bare name may be any word"),
        pytest.param("very-big.default", "very-big.default", id="not the end of a name"),
        pytest.param("big.default.example.org", "big.default.example.org", id="not of a domain"),
        pytest.param("big.defaults", "big.defaults", id="not the start of a name"),
        pytest.param("/srv/big.default", "/srv/big.default", id="not a file"),
        pytest.param("big-cloud", "big-cloud", id="a worker's name is no host"),
    ],
)
def test_service_names_become_addresses(text: str, rewritten: str) -> None:
    assert HostRewriter("default", SERVICES)(text) == rewritten


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("BIG_MODEL_IP", "10.0.0.1"),
        ("MASTER_ADDR", "10.0.0.1"),
        ("SERVICE_NAME", "big"),
        ("PEER_HOSTNAME", "10.0.0.1"),
        ("HOSTNAME", "big"),
    ],
)
def test_a_bare_name_is_a_host_where_its_variable_says_so(variable: str, value: str) -> None:
    assert HostRewriter("default", SERVICES)("big", variable=variable) == value


HEADLESS = [
    ServiceHost("w-0", "default", "10.0.0.4", is_headless=True),
    ServiceHost("w-1", "default", "10.0.0.5", is_headless=True),
]


@pytest.mark.parametrize(
    ("text", "named", "rewritten"),
    [
        pytest.param("w-0:22", {("w-0", 22)}, "10.0.0.4:40022", id="bare name"),
        pytest.param("w-0.default.svc:22", {("w-0", 22)}, "10.0.0.4:40022", id="svc"),
        pytest.param("tcp://w-0:22/x", {("w-0", 22)}, "tcp://10.0.0.4:40022/x", id="URL"),
        pytest.param(
            '{"a":["w-0.default:22","w-1.default:23"]}',
            {("w-0", 22), ("w-1", 23)},
            '{"a":["10.0.0.4:40022","10.0.0.5:23"]}',
            id="a port that does not move stays",
        ),
        pytest.param("w-0.default", set(), "10.0.0.4", id="no port"),
        pytest.param("w-0.default:x", set(), "10.0.0.4:x", id="no number"),
        pytest.param("w-0.default:123456", set(), "10.0.0.4:123456", id="no port number"),
        pytest.param("big.default:22", set(), "10.0.0.1:22", id="not headless"),
    ],
)
def test_ports_follow_the_names_of_headless_services(
    text: str, named: set[tuple[str, int]], rewritten: str
) -> None:
    rewriter = HostRewriter("default", [*SERVICES, *HEADLESS])
    assert {(each.host.name, each.port) for each in rewriter.endpoints(text)} == named
    rewriter.move_ports({Endpoint(HEADLESS[0], 22): 40022})
    assert rewriter(text) == rewritten
