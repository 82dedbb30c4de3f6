"""Settings: precedence, and what each mistake is answered with."""

from pathlib import Path
from typing import Annotated, Literal

import msgspec
import pytest

from common.settings import Env, fields_of, load, split_address
from edgeai.errors import SettingsError


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    node_name: Annotated[str, Env("NODENAME")]
    """name of the node"""
    qps: float = 200.0
    """requests per second"""
    verbose: bool = False
    """say more"""
    level: Literal["debug", "info"] = "info"
    """least level"""
    state_dir: Path = Path("/var/lib/edgeai")
    """where state is kept"""
    ca_file: Path | None = None
    """PEM file of a CA"""
    images: dict[str, str] = {}
    """image by framework"""
    groups: tuple[str, ...] = ("edgeai.io",)
    """API groups"""


def read(*argv: str, env: dict[str, str] | None = None) -> Sample:
    return load(Sample, prog="sample", argv=argv, env={"NODENAME": "n"} if env is None else env)


def write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_flag_beats_environment_beats_file_beats_default(tmp_path: Path) -> None:
    config = write(tmp_path / "c.yaml", "nodeName: file\nqps: 1\nlevel: debug\n")
    env = {"NODENAME": "env", "EDGEAI_QPS": "2", "EDGEAI_CONFIG": config}
    settings = read("--node-name", "flag", env=env)
    assert settings == Sample(node_name="flag", qps=2.0, level="debug")


def test_empty_variable_says_nothing() -> None:
    assert read(env={"NODENAME": "n", "EDGEAI_LEVEL": "", "EDGEAI_QPS": ""}) == Sample(
        node_name="n"
    )


@pytest.mark.parametrize(
    ("argv", "field", "value"),
    [
        (["--qps", "3"], "qps", 3.0),
        (["--verbose", "true"], "verbose", True),
        (["--images", "tf:1.18=a/b:c, torch:2=d"], "images", {"tf:1.18": "a/b:c", "torch:2": "d"}),
        (["--groups", "edgeai.io,sedna.io"], "groups", ("edgeai.io", "sedna.io")),
        (["--state-dir", "/x"], "state_dir", Path("/x")),
        (["--ca-file", "/y"], "ca_file", Path("/y")),
    ],
)
def test_text_becomes_the_declared_type(argv: list[str], field: str, value: object) -> None:
    assert getattr(read(*argv), field) == value


@pytest.mark.parametrize(
    ("argv", "env", "says"),
    [
        (["--qsp", "1"], None, "flag --qsp: is unknown; did you mean --qps?"),
        (["--qps=much"], None, "flag --qps: 'much' is no number"),
        (["--level", "loud"], None, "flag --level: 'loud' is no debug | info"),
        (["--images", "a"], None, "flag --images: 'a' is not a list of key=value"),
        (["--qps"], None, "command line: argument --qps: expected one argument"),
        (["stray"], None, "flag stray: is unknown"),
        ([], {}, "flag --node-name: is required: name of the node (or set NODENAME"),
        ([], {"NODENAME": "n", "EDGEAI_QPS": "x"}, "environment EDGEAI_QPS: 'x' is no number"),
        (["--config", "/nowhere/c.yaml"], None, "configuration file /nowhere/c.yaml: cannot be"),
    ],
)
def test_mistake_is_named(argv: list[str], env: dict[str, str] | None, says: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read(*argv, env=env)
    assert str(caught.value).startswith(says)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("qsp: 1", "key 'qsp' is unknown; did you mean qps?"),
        ("qps: {a: 1}", "key qps: {'a': 1} is no number"),
        ("caFile: 5", "key caFile: 5 is no path"),
        ("- a", "must be a map of keys"),
        ("a: [", "is not valid YAML"),
    ],
)
def test_mistake_in_the_file_is_named(tmp_path: Path, text: str, says: str) -> None:
    config = write(tmp_path / "c.yaml", text)
    with pytest.raises(SettingsError) as caught:
        read("--config", config)
    assert f"configuration file {config}" in str(caught.value)
    assert says in str(caught.value)


def test_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SettingsError, match="cannot be read"):
        read("--config", str(path))


def test_help_names_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read("--help")
    text = capsys.readouterr().out
    assert all(field.flag in text and field.env in text for field in fields_of(Sample))
    words = " ".join(text.split())
    assert all(field.help and field.help in words for field in fields_of(Sample))


@pytest.mark.parametrize("text", ["", "host", ":1", "host:", "host:65536", "host:-1", "host:a"])
def test_bad_address_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="HOST:PORT"):
        split_address(text, "flag --edge-address")


def test_addresses() -> None:
    assert split_address("127.0.0.1:0", "x") == ("127.0.0.1", 0)
    assert split_address("[::1]:80", "x") == ("::1", 80)
