"""Where the API server is, and how this process proves who it is: by a kubeconfig, or by its pod.

The format is that of client-go (k8s.io/client-go/tools/clientcmd/api/v1): tokens, token files,
client certificates, basic authentication and exec plugins. An `auth-provider` is refused, because
exec plugins have replaced it.
"""

import base64
import os
import ssl
import tempfile
from pathlib import Path
from typing import Any, Final, NamedTuple, Self
from urllib.parse import urlsplit

import msgspec

from edgeai.errors import SettingsError
from edgeai.kube.plugin import Plugin, PluginFailed

TOKEN_FILE_S: Final = 60.0
"""A token file is read again after this time, as client-go does: it is renewed long before."""
_SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_MADE_BY_KUBECTL: Final = "`kubectl config view --raw` shows a whole file"
_USE_CONTEXT: Final = "choose one with `kubectl config use-context`"

Pem = Path | str
"""Certificates or a key: their file, or their text."""


class Credentials(NamedTuple):
    server: str  # URL without a slash at its end
    ca: Pem | None = None  # of the server's certificate; None: the CAs of the system
    server_name: str = ""  # of the server's certificate if it is not the host
    is_verified: bool = True  # False accepts every certificate of the server
    proxy: str = ""  # URL
    certificate: tuple[Pem, Pem] | None = None  # of this process, with its key
    authorization: str = ""  # value of the header
    is_renewed: bool = False  # the authorization comes from a file that somebody renews

    def anonymous(self) -> Self:
        """The same server, and nothing of who asks."""
        return self._replace(certificate=None, authorization="", is_renewed=False)

    def tls(self) -> ssl.SSLContext:
        """Raises: OSError, ValueError when a certificate or key cannot be used"""
        file = str(self.ca) if isinstance(self.ca, Path) else None
        text = self.ca if isinstance(self.ca, str) else None
        context = ssl.create_default_context(cafile=file, cadata=text)
        if not self.is_verified:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.certificate is not None:
            with tempfile.TemporaryDirectory() as directory:  # OpenSSL reads files only
                certificate, key = (
                    _written(pem, Path(directory, name))
                    for pem, name in zip(self.certificate, ("certificate", "key"), strict=True)
                )
                # Without a password OpenSSL would ask on the terminal for that of the key.
                context.load_cert_chain(certificate, key, password="")
        return context


def _written(pem: Pem, file: Path) -> Path:
    if isinstance(pem, Path):
        return pem
    file.write_text(pem, encoding="ascii")
    return file


class CredentialSource:
    name: str
    """File or place, for messages."""

    async def load(self) -> Credentials:
        """Raises: SettingsError, which names the source and its fault"""
        try:
            return await self._load()
        # A file may be malformed in ways that only its decoders and the system know.
        except (OSError, ValueError, RecursionError) as error:
            problem = " ".join(str(error).split())
            raise SettingsError(self.name, f"cannot be used: {problem}") from error

    async def _load(self) -> Credentials:
        raise NotImplementedError


class Unchanging(CredentialSource):
    """Credentials that are never read again."""

    def __init__(self, name: str, credentials: Credentials) -> None:
        self.name = name
        self._credentials = credentials

    async def _load(self) -> Credentials:
        return self._credentials


class ServiceAccount(CredentialSource):
    """That of the pod around this process. Args: directory: of its `token` and of `ca.crt`"""

    name = "in-cluster configuration"

    def __init__(self, directory: Path = _SERVICE_ACCOUNT) -> None:
        self._directory = directory

    async def _load(self) -> Credentials:
        host, port = (os.environ.get(f"KUBERNETES_SERVICE_{part}") for part in ("HOST", "PORT"))
        if not host or not port:
            problem = "there is none outside of a pod; name a kubeconfig file"
            raise SettingsError(self.name, problem)
        return Credentials(
            f"https://{f'[{host}]' if ':' in host else host}:{port}",
            ca=_file(self.name, self._directory / "ca.crt"),
            authorization=_token_in(self.name, self._directory / "token"),
            is_renewed=True,
        )


class Kubeconfig(CredentialSource):
    """A context of a file; "" means the current context."""

    def __init__(self, path: Path, context: str = "") -> None:
        self.name = f"kubeconfig {path}"
        self._context = context
        self._path = path
        self._directory = path.absolute().parent  # of the relative names in the file

    async def _load(self) -> Credentials:
        content = _decoded(self.name, self._path)
        cluster, user = _selected(self.name, content, self._context)
        credentials = Credentials(
            cluster.server.rstrip("/"),
            server_name=cluster.tls_server_name,
            is_verified=not cluster.insecure_skip_tls_verify,
            proxy=cluster.proxy_url,
        )
        if cluster.server.startswith("https:"):
            authority = cluster.certificate_authority, cluster.certificate_authority_data
            credentials = credentials._replace(
                ca=self._pem(*authority, "certificate-authority"),
                certificate=self._certificate(user),
            )
        if user.exec is not None:
            return await self._by_plugin(credentials, user.exec)
        if user.token_file:
            token = _token_in(self.name, self._directory / user.token_file)
            return credentials._replace(authorization=token, is_renewed=True)
        if user.token:
            return self._by_token(credentials, user.token)
        if user.username and user.password:
            basic = base64.b64encode(f"{user.username}:{user.password}".encode()).decode()
            return credentials._replace(authorization=f"Basic {basic}")
        return credentials

    async def _by_plugin(self, credentials: Credentials, plugin: Plugin) -> Credentials:
        if os.sep in plugin.command:
            plugin = msgspec.structs.replace(plugin, command=str(self._directory / plugin.command))
        try:
            status = await plugin.run()
        except PluginFailed as error:
            raise SettingsError(self.name, f"cannot be used: exec: {error}") from error
        if status.client_certificate_data and status.client_key_data:
            certificate = status.client_certificate_data, status.client_key_data
            credentials = credentials._replace(certificate=certificate)
        return self._by_token(credentials, status.token) if status.token else credentials

    def _by_token(self, credentials: Credentials, token: str) -> Credentials:
        return credentials._replace(authorization=_bearer(self.name, token))

    def _certificate(self, user: "_User") -> tuple[Pem, Pem] | None:
        certificate = self._pem(
            user.client_certificate, user.client_certificate_data, "client-certificate"
        )
        key = self._pem(user.client_key, user.client_key_data, "client-key")
        if (certificate is None) != (key is None):
            problem = "client-certificate and client-key must be given together"
            raise SettingsError(self.name, problem)
        return None if certificate is None or key is None else (certificate, key)

    def _pem(self, file: str, data: str, field: str) -> Pem | None:
        """Data counts more than a file, as for kubectl."""
        if data:
            try:
                pem = base64.b64decode("".join(data.split()), validate=True)
                return pem.decode("ascii", "ignore")  # only comments have other characters
            except ValueError as error:  # binascii.Error is a ValueError
                raise SettingsError(self.name, f"{field}-data is no base64 of PEM") from error
        return _file(self.name, self._directory / file) if file else None


# ---- the format ---------------------------------------------------------------------------------


class _Cluster(msgspec.Struct, rename="kebab"):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    proxy_url: str = ""


class _User(msgspec.Struct, rename="kebab"):
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    username: str = ""
    password: str = ""
    exec: Plugin | None = None
    auth_provider: dict[str, Any] = {}
    impersonated: str = msgspec.field(default="", name="as")


class _Context(msgspec.Struct):
    cluster: str = ""
    user: str = ""


class _Entry(msgspec.Struct):
    """A cluster, a user or a context with its name."""

    name: str
    cluster: _Cluster = msgspec.field(default_factory=_Cluster)
    user: _User = msgspec.field(default_factory=_User)
    context: _Context = msgspec.field(default_factory=_Context)


class _Content(msgspec.Struct, rename="kebab"):
    clusters: list[_Entry] = []
    contexts: list[_Entry] = []
    users: list[_Entry] = []
    current_context: str = ""


def _decoded(source: str, path: Path) -> _Content:
    import yaml  # here, because yaml takes 1 MiB, and a pod has no kubeconfig

    if path.exists() and not path.is_file():
        raise SettingsError(source, "is no file but a directory or a pipe; name a file")
    try:
        text = path.read_text(encoding="utf-8")
        # A few nested aliases would make a small file fill the memory.
        if "*" in text and any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text)):
            raise yaml.YAMLError("aliases are not accepted")
        content = yaml.safe_load(text)
    except OSError as error:
        problem = f"cannot be read: {error.strerror}; name another with --kubeconfig"
        raise SettingsError(source, problem) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(source, f"is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise SettingsError(source, "is empty or no YAML mapping")
    try:
        return msgspec.convert(_without_nulls(content), _Content)
    except msgspec.ValidationError as error:
        raise SettingsError(source, f"{error}; {_MADE_BY_KUBECTL}") from error


def _without_nulls(value: Any) -> Any:
    """For Go, null is the same as nothing."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _selected(source: str, content: _Content, context_name: str) -> tuple[_Cluster, _User]:
    name = context_name or content.current_context
    for field, value, remedy in (
        ("clusters", content.clusters, _MADE_BY_KUBECTL),
        ("contexts", content.contexts, _MADE_BY_KUBECTL),
        ("current-context", name, _USE_CONTEXT),
    ):
        if not value:
            raise SettingsError(source, f"{field} is missing or empty; {remedy}")
    contexts = {each.name: each.context for each in content.contexts}
    clusters = {each.name: each.cluster for each in content.clusters}
    users = {"": _User()} | {each.name: each.user for each in content.users}
    if name not in contexts:
        problem = f"context {name!r} is not among its contexts: {', '.join(sorted(contexts))}"
        raise SettingsError(source, problem if context_name else f"current-{problem}")
    context = contexts[name]
    if context.cluster not in clusters:
        raise SettingsError(source, f"context {name!r} names no cluster of the file")
    if context.user not in users:
        raise SettingsError(source, f"user {context.user!r} of context {name!r} is not among users")
    cluster, user = clusters[context.cluster], users[context.user]
    _check_server(source, context.cluster, cluster.server)
    if cluster.proxy_url and not cluster.proxy_url.startswith(("http://", "https://")):
        problem = f"proxy-url {cluster.proxy_url!r} is no http or https URL"
        raise SettingsError(source, problem)
    for field, is_present, remedy in (
        ("auth-provider", bool(user.auth_provider), "use an exec plugin"),
        ("as", bool(user.impersonated), "use the credentials of that user"),
    ):
        if is_present:
            problem = f"user {context.user!r} has {field}, which is not supported; {remedy}"
            raise SettingsError(source, problem)
    return cluster, user


def _check_server(source: str, cluster: str, server: str) -> None:
    if not server:
        raise SettingsError(source, f"cluster {cluster!r} has no server")
    if not server.startswith(("https://", "http://")):
        problem = f"server {server!r} is no http or https URL; write it as https://HOST:PORT"
        raise SettingsError(source, problem)
    try:
        is_complete = bool(urlsplit(server).hostname) and urlsplit(server).port != 0
    except ValueError:
        is_complete = False
    if not is_complete:
        problem = f"server {server!r} has no valid host and port; write it as https://HOST:PORT"
        raise SettingsError(source, problem)


# ---- files and tokens ---------------------------------------------------------------------------


def _file(source: str, path: Path) -> Path:
    if not path.is_file():
        raise SettingsError(source, f"cannot be used: its file {path} does not exist")
    return path


def _token_in(source: str, path: Path) -> str:
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(source, f"its token cannot be read: {error}") from error
    if not token:
        raise SettingsError(source, f"its token {path} is empty")
    return _bearer(source, token)


def _bearer(source: str, token: str) -> str:
    if not token.isprintable():
        raise SettingsError(source, "its token has a line break or another control character")
    return f"Bearer {token}"
