"""What a kubeconfig or a pod says of who this process is."""

import asyncio
import base64
import json
import ssl
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from edgeai.errors import SettingsError
from edgeai.kube.credentials import TOKEN_FILE_S, Credentials, Kubeconfig, ServiceAccount
from edgeai.kube.transport import Transport, open_transport
from tests.edgeai.kube.test_plugin import VERSION
from tests.support.certificates import Authority, openssl

SERVER: Final = "https://127.0.0.1:1"


@pytest.fixture(scope="module")
def pems(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, str]:
    """Certificate, key and CA, as text."""
    authority = Authority(tmp_path_factory.mktemp("authority"))
    certificate, key = authority.issue("somebody")
    return certificate.read_text(), key.read_text(), authority.certificate.read_text()


def kubeconfig(
    directory: Path, user: dict[str, Any], cluster: dict[str, Any] | None = None
) -> Path:
    content = {
        "clusters": [{"name": "c", "cluster": {"server": SERVER, **(cluster or {})}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": user}],
        "current-context": "x",
    }
    path = directory / "kubeconfig"
    path.write_text(yaml.safe_dump(content))
    return path


async def credentials(directory: Path, user: dict[str, Any], **cluster: Any) -> Credentials:
    return await Kubeconfig(kubeconfig(directory, user, cluster)).load()


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


async def test_a_name_and_password_are_shown(tmp_path: Path) -> None:
    loaded = await credentials(tmp_path, {"username": "me", "password": "p:w"})
    assert loaded.authorization == f"Basic {encoded('me:p:w')}"


async def test_null_is_nothing(tmp_path: Path) -> None:
    user = {"token": None, "exec": None, "client-certificate": None}
    loaded = await credentials(tmp_path, user, **{"proxy-url": None})
    assert loaded == Credentials(SERVER)


async def test_certificates_may_be_text_or_files(
    tmp_path: Path, pems: tuple[str, str, str]
) -> None:
    """The names of files are relative to the kubeconfig."""
    fields = ("client-certificate", "client-key")
    for field, pem in zip(fields, pems, strict=False):
        (tmp_path / field).write_text(pem)
    (tmp_path / "ca").write_text(pems[2])
    text = {f"{field}-data": encoded(pem) for field, pem in zip(fields, pems, strict=False)}
    for user, cluster in (
        (text, {"certificate-authority-data": encoded(pems[2])}),
        ({field: field for field in fields}, {"certificate-authority": "ca"}),
        ({**text, "client-key": "client-key", "client-key-data": ""}, {}),
    ):
        loaded = await credentials(tmp_path, user, **cluster)
        assert loaded.certificate is not None
        context = loaded.tls()
        assert context.verify_mode == ssl.CERT_REQUIRED
        if cluster:
            assert len(context.get_ca_certs()) == 1
        assert loaded.anonymous() == loaded._replace(certificate=None)


async def test_a_server_that_need_not_be_verified(tmp_path: Path) -> None:
    loaded = await credentials(tmp_path, {}, **{"insecure-skip-tls-verify": True})
    assert loaded.tls().verify_mode == ssl.CERT_NONE


async def test_a_plugin_gives_a_certificate(tmp_path: Path, pems: tuple[str, str, str]) -> None:
    status = {"clientCertificateData": pems[0], "clientKeyData": pems[1]}
    credential = {"apiVersion": VERSION, "kind": "ExecCredential", "status": status}
    (tmp_path / "credential").write_text(json.dumps(credential))
    plugin = {"command": "cat", "args": [str(tmp_path / "credential")], "apiVersion": VERSION}
    loaded = await credentials(tmp_path, {"exec": plugin})
    assert (loaded.certificate, loaded.authorization) == (pems[:2], "")
    loaded.tls()


async def test_data_may_have_lines_and_comments(tmp_path: Path, pems: tuple[str, str, str]) -> None:
    text = base64.encodebytes(f"# Főtanúsítvány\n{pems[2]}".encode()).decode()
    loaded = await credentials(tmp_path, {}, **{"certificate-authority-data": text})
    assert len(loaded.tls().get_ca_certs()) == 1


async def test_a_key_with_a_password_is_refused_and_nobody_is_asked(
    tmp_path: Path, pems: tuple[str, str, str]
) -> None:
    (tmp_path / "plain").write_text(pems[1])
    flags = ("-topk8", "-in", str(tmp_path / "plain"), "-passout", "pass:secret")
    openssl("pkcs8", *flags, "-out", str(tmp_path / "key"))
    user = {"client-certificate-data": encoded(pems[0]), "client-key": "key"}
    loaded = await credentials(tmp_path, user)
    with pytest.raises(ssl.SSLError):
        loaded.tls()


async def test_what_counts_more(tmp_path: Path, pems: tuple[str, str, str]) -> None:
    """As for client-go: data more than a file, a plugin more than tokens, a file more than text."""
    (tmp_path / "token").write_text("from a file")
    (tmp_path / "ca").write_text(pems[0])
    credential = {"apiVersion": VERSION, "kind": "ExecCredential", "status": {"token": "printed"}}
    plugin = {"command": "echo", "args": [json.dumps(credential)], "apiVersion": VERSION}
    authority = {"certificate-authority": "ca", "certificate-authority-data": encoded(pems[2])}
    tokens = {"token": "text", "tokenFile": "token"}
    by_file = await credentials(tmp_path, tokens, **authority)
    assert (by_file.authorization, by_file.is_renewed) == ("Bearer from a file", True)
    assert by_file.ca == pems[2]
    by_plugin = await credentials(tmp_path, {**tokens, "exec": plugin})
    assert (by_plugin.authorization, by_plugin.is_renewed) == ("Bearer printed", False)


async def test_a_plugin_of_a_path_lies_beside_the_file(tmp_path: Path) -> None:
    credential = {"apiVersion": VERSION, "kind": "ExecCredential", "status": {"token": "t0"}}
    (tmp_path / "plugin").write_text(f"#!/bin/sh\necho '{json.dumps(credential)}'\n")
    (tmp_path / "plugin").chmod(0o700)
    plugin = {"command": "./plugin", "apiVersion": VERSION}
    assert (await credentials(tmp_path, {"exec": plugin})).authorization == "Bearer t0"


async def test_the_server_of_a_name_and_a_proxy(tmp_path: Path) -> None:
    fields = {"tls-server-name": "api.example", "proxy-url": "http://proxy:3128"}
    loaded = await credentials(tmp_path, {}, server=f"{SERVER}/path/", **fields)
    assert loaded == Credentials(
        f"{SERVER}/path", server_name="api.example", proxy="http://proxy:3128"
    )
    plain = await credentials(
        tmp_path, {}, server="http://127.0.0.1:1", **{"certificate-authority": "nowhere"}
    )
    assert plain.ca is None


BAD: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "auth-provider": ({"auth-provider": {"name": "oidc"}}, "use an exec plugin"),
    "impersonation": ({"as": "root"}, "use the credentials of that user"),
    "a certificate alone": ({"client-certificate-data": "MTIz"}, "must be given together"),
    "a NUL in a name": ({"tokenFile": "a\0b"}, "cannot be used: "),
    "a long name": ({"client-key": "a" * 300}, "cannot be used: "),
    "no token file": ({"tokenFile": "nowhere"}, "its token cannot be read: [Errno 2]"),
    **{
        f"{character!r} in a token": ({"token": f"a{character}b"}, "its token has a line break")
        for character in "\n\r\t\0"
    },
    "a number": ({"token": 5}, "Expected `str`, got `int` - at `$.users[0].user.token`"),
    "no base64": ({"client-key-data": "?"}, "client-key-data is no base64"),
    "no key": ({"client-key": "nowhere"}, "nowhere does not exist"),
    "no command": ({"exec": {"apiVersion": VERSION}}, "missing required field `command`"),
}


@pytest.mark.parametrize(("user", "problem"), BAD.values(), ids=BAD)
async def test_a_fault_is_named(tmp_path: Path, user: dict[str, Any], problem: str) -> None:
    with pytest.raises(SettingsError) as caught:
        await credentials(tmp_path, user)
    assert str(caught.value).startswith(f"kubeconfig {tmp_path}/kubeconfig")
    assert problem in str(caught.value)
    token = user.get("token")
    assert not isinstance(token, str) or token not in str(caught.value)


@pytest.mark.parametrize("name", ["token", "ca.crt"])
async def test_a_pod_without_an_account_is_named(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    for each in ("token", "ca.crt"):
        (tmp_path / each).write_text("t0\n")
    loaded = await ServiceAccount(tmp_path).load()
    assert loaded == Credentials(
        "https://[fd00::1]:443",
        ca=tmp_path / "ca.crt",
        authorization="Bearer t0",
        is_renewed=True,
    )
    (tmp_path / name).unlink()
    with pytest.raises(SettingsError, match=f"{tmp_path}/{name}"):
        await ServiceAccount(tmp_path).load()


@pytest.mark.looptime
async def test_a_token_file_is_read_again_and_a_bad_one_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t0\n")
    source = Kubeconfig(kubeconfig(tmp_path, {"tokenFile": "token"}))
    transport = Transport(await source.load(), source)
    assert await transport.token() == "t0"
    (tmp_path / "token").write_text("t1\n")
    await asyncio.sleep(TOKEN_FILE_S - 1)
    assert await transport.token() == "t0"
    await asyncio.sleep(1)
    assert await transport.token() == "t1"
    (tmp_path / "token").write_text("")
    await asyncio.sleep(TOKEN_FILE_S)
    assert await transport.token() == "t1"
    await transport.close()


MALFORMED: Final = {
    "deep": "[" * 3000,
    "no date": "a: 2001-99-99",
    "no number": "a: !!int abc",
    "aliases": "a: &a [x]\nb: [*a, *a]",
    "itself": "a: &a {b: *a}",
}


@pytest.mark.parametrize("text", MALFORMED.values(), ids=MALFORMED)
async def test_what_cannot_be_decoded_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "kubeconfig").write_text(text)
    with pytest.raises(SettingsError, match="kubeconfig"):
        await Kubeconfig(tmp_path / "kubeconfig").load()


async def test_another_context_changes_nothing_of_a_running_process(tmp_path: Path) -> None:
    """Else it would go on with its requests at another cluster."""
    path = kubeconfig(tmp_path, {"token": "t0"})
    transport = await open_transport(path)
    path.write_text(path.read_text().replace(SERVER, "https://other:1").replace("t0", "t1"))
    with pytest.raises(SettingsError, match="names another server now: https://other:1"):
        await transport.renew()
    assert await transport.token() == "t0"
    await transport.close()


async def test_without_credentials_none_come_back(tmp_path: Path) -> None:
    """A renewal after a 401 reads no credentials of this process for the requests of others."""
    transport = await open_transport(kubeconfig(tmp_path, {"token": "t0"}))
    bare = transport.without_credentials()
    await bare.renew()
    assert (await transport.token(), await bare.token()) == ("t0", "")
    await transport.close()
    await bare.close()
