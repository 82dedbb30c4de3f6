"""A kubeconfig that cannot be used: it ends the process, or is told with the field to change."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
import yaml

from edgeai.cli.api import Object
from tests.cluster.bad_input.unready import Launch
from tests.cluster.controlplane import ControlPlane
from tests.support.certificates import Authority

EXIT_S: Final = 30.0


def lacking(field: str) -> Callable[[Object], Object]:
    return lambda content: {key: value for key, value in content.items() if key != field}


def with_server(url: str) -> Callable[[Object], Object]:
    def change(content: Object) -> Object:
        (entry,) = content["clusters"]
        return {**content, "clusters": [{**entry, "cluster": {**entry["cluster"], "server": url}}]}

    return change


HOPELESS: Final[dict[str, tuple[Callable[[Object], Object | str | None], str]]] = {
    "missing": (lambda _: None, "cannot be read: No such file or directory; name"),
    "no YAML": (lambda _: "clusters: [", "is not YAML"),
    "a list": (lambda _: "[1, 2]", "no YAML mapping"),
    "no current-context": (lacking("current-context"), "current-context is missing or empty; "),
    "another scheme": (with_server("ftp://127.0.0.1:1"), "server 'ftp://127.0.0.1:1' is no http"),
    "no scheme": (with_server("127.0.0.1:6443"), "server '127.0.0.1:6443' is no http"),
}


@pytest.mark.parametrize(("change", "words"), HOPELESS.values(), ids=HOPELESS)
def test_a_kubeconfig_that_cannot_be_used_ends_the_process_with_one_line(
    plane: ControlPlane,
    tmp_path: Path,
    change: Callable[[Object], Object | str | None],
    words: str,
) -> None:
    kubeconfig, tokens = tmp_path / "kubeconfig", tmp_path / "tokens"
    tokens.touch()
    content = change(yaml.safe_load(plane.kubeconfig.read_text()))
    if content is not None:
        kubeconfig.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "globalmanager", "--kubeconfig", str(kubeconfig)),
            *("--edge-plaintext", "allow", "--edge-token-file", str(tokens)),
            *("--edge-address", "127.0.0.1:0", "--http-address", "127.0.0.1:0"),
        ],
        capture_output=True,
        text=True,
        timeout=EXIT_S,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"globalmanager: kubeconfig {kubeconfig}: ")
    assert words in line


def change_kubeconfig(plane: ControlPlane, path: Path, change: Callable[[Object], object]) -> None:
    content = yaml.safe_load(plane.kubeconfig.read_text())
    change(content)
    path.write_text(yaml.safe_dump(content))


def test_a_server_whose_certificate_is_not_trusted_is_told_with_the_field(
    plane: ControlPlane, launch: Launch, tmp_path: Path
) -> None:
    other = Authority(tmp_path).certificate
    kubeconfig = tmp_path / "kubeconfig"

    def distrust(content: Object) -> None:
        cluster = content["clusters"][0]["cluster"]
        del cluster["certificate-authority-data"]
        cluster["certificate-authority"] = str(other)

    change_kubeconfig(plane, kubeconfig, distrust)
    manager = launch(kubeconfig)
    manager.wait_for_reason(plane.url, str(kubeconfig), "certificate-authority", "restart")


def test_plain_http_to_a_server_of_https_is_told_with_the_field(
    plane: ControlPlane, launch: Launch, tmp_path: Path
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    plain = plane.url.replace("https", "http")
    change_kubeconfig(
        plane, kubeconfig, lambda content: content.update(with_server(plain)(content))
    )
    launch(kubeconfig).wait_for_reason("TLS", "https://", str(kubeconfig), "restart")


def test_an_unknown_token_is_told_with_the_file(
    plane: ControlPlane, launch: Launch, tmp_path: Path
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    change_kubeconfig(
        plane, kubeconfig, lambda content: content["users"][0].update(user={"token": "unknown"})
    )
    manager = launch(kubeconfig)
    manager.wait_for_reason("401", "credential", str(kubeconfig))
