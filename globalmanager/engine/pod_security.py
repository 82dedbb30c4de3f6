"""What the Pod Security Standards forbid in a pod: the fields, by their path.

Pure and total: a field of a wrong form is left to the API server, which refuses the field. Source
of the controls and of the values that they allow:
https://kubernetes.io/docs/concepts/security/pod-security-standards/ of Kubernetes 1.34, as
k8s.io/pod-security-admission implements them for the version "latest". The relaxations for pods in
a user namespace (Kubernetes 1.35) do not count here.
"""

import enum
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Any, Final, NamedTuple

from edgeai.api.specs import shown
from edgeai.api.status import mapping

ENFORCE: Final = "pod-security.kubernetes.io/enforce"
"""Label of a namespace: the level that its pods must have."""


class Level(enum.StrEnum):
    """The levels of the standard, from the widest to the strictest."""

    PRIVILEGED = "privileged"
    BASELINE = "baseline"
    RESTRICTED = "restricted"


class Violation(NamedTuple):
    """A field that the standard forbids."""

    field: str
    """Path of the field from the pod template: "spec.containers[0].securityContext.privileged"."""
    problem: str
    owner: str
    """The field with the names of containers and volumes in place of indices. The field has the
    same owner in a user's template and in the pod that edgeai makes of the template."""

    def __str__(self) -> str:
        return f"{self.field} {self.problem}"


def level_of(labels: Any, default: Level) -> Level:
    """The level that a namespace asks for; as in Kubernetes the strictest for one that is none."""
    level = mapping(labels).get(ENFORCE)
    if level is None:
        return default
    return Level(level) if level in list(Level) else Level.RESTRICTED


def violations(level: Level, template: Any) -> list[Violation]:
    """The fields of a pod template, or of a pod, that `level` forbids."""
    if level is Level.PRIVILEGED:
        return []
    pod = _Pod(template)
    checks = _BASELINE if level is Level.BASELINE else (*_BASELINE, *_RESTRICTED)
    return [violation for check in checks for violation in check(pod)]


# ---- the parts of a pod -------------------------------------------------------------------------


class _Part(NamedTuple):
    """A map in the pod, with its path by index and its path by name."""

    field: str
    owner: str
    content: Mapping[str, Any]

    def at(self, *keys: str) -> "_Part":
        content = self.content
        for key in keys:
            content = mapping(content.get(key))
        suffix = "".join(f".{key}" for key in keys)
        return _Part(self.field + suffix, self.owner + suffix, content)

    def entries(self, key: str) -> "Iterator[_Part]":
        items = self.content.get(key)
        for index, entry in enumerate(items if isinstance(items, list) else ()):
            content = mapping(entry)
            yield _Part(
                f"{self.field}.{key}[{index}]",
                f"{self.owner}.{key}[{content.get('name')}]",
                content,
            )

    def against(self, key: str, problem: str) -> Violation:
        return Violation(f"{self.field}.{key}", problem, f"{self.owner}.{key}")


class _Pod:
    """The parts that the controls look at."""

    def __init__(self, template: Any) -> None:
        top = mapping(template)
        self.annotations = _Part(
            "metadata.annotations",
            "metadata.annotations",
            mapping(mapping(top.get("metadata")).get("annotations")),
        )
        self.spec = _Part("spec", "spec", mapping(top.get("spec")))
        self.specs = [self.spec]
        self.context = self.spec.at("securityContext")
        self.sysctls = list(self.context.entries("sysctls"))
        self.volumes = list(self.spec.entries("volumes"))
        self.containers = [
            container
            for kind in ("initContainers", "containers", "ephemeralContainers")
            for container in self.spec.entries(kind)
        ]
        self.ports = [port for container in self.containers for port in container.entries("ports")]
        self.contexts = [container.at("securityContext") for container in self.containers]
        self.all_contexts = [self.context, *self.contexts]
        self.is_windows = self.spec.at("os").content.get("name") == "windows"
        self.linux_contexts = [] if self.is_windows else self.contexts


_Check = Callable[[_Pod], Iterator[Violation]]
_Parts = Callable[[_Pod], Iterable[_Part]]
_ALL_CONTEXTS: Final[_Parts] = attrgetter("all_contexts")
_CONTEXTS: Final[_Parts] = attrgetter("contexts")
_LINUX_CONTEXTS: Final[_Parts] = attrgetter("linux_contexts")
_SPECS: Final[_Parts] = attrgetter("specs")


def _must_be_one_of(part: _Part, key: str, allowed: Collection[str]) -> Iterator[Violation]:
    """A field that is missing or empty is allowed."""
    value = part.content.get(key)
    if value not in (None, "") and value not in allowed:
        yield part.against(key, f"must not be {shown(str(value))}; {_either(allowed)}")


def _only(parts: _Parts, key: str, values: Collection[Any], problem: str, *at: str) -> _Check:
    """The check of a field. Args: values: that are allowed; at: the path to the field's map"""

    def check(pod: _Pod) -> Iterator[Violation]:
        for part in parts(pod):
            place = part.at(*at)
            if place.content.get(key) not in values:
                yield place.against(key, problem)

    return check


def _untrue(parts: _Parts, key: str, *at: str) -> _Check:
    return _only(parts, key, (None, False), "must not be true", *at)


def _one_of(parts: _Parts, key: str, allowed: Collection[str], *at: str) -> _Check:
    """As `_only`, and the problem names the allowed values. Nothing and "" are allowed."""

    def check(pod: _Pod) -> Iterator[Violation]:
        for part in parts(pod):
            yield from _must_be_one_of(part.at(*at), key, allowed)

    return check


def _either(allowed: Collection[str]) -> str:
    return f"allowed: {', '.join(allowed)}" if allowed else "leave it out"


# ---- baseline -----------------------------------------------------------------------------------

_CAPABILITIES: Final = (
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
)
_SYSCTLS: Final = (
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
)
_SELINUX_TYPES: Final = (
    "container_t",
    "container_init_t",
    "container_kvm_t",
    "container_engine_t",
)
_PROFILES: Final = ("RuntimeDefault", "Localhost")
_APPARMOR: Final = "container.apparmor.security.beta.kubernetes.io/"
_HANDLERS: Final = (
    ("livenessProbe",),
    ("readinessProbe",),
    ("startupProbe",),
    ("lifecycle", "postStart"),
    ("lifecycle", "preStop"),
)


def _added_capabilities(pod: _Pod) -> Iterator[Violation]:
    for context in pod.contexts:
        yield from _added(context, _CAPABILITIES)


def _added(context: _Part, allowed: Collection[str]) -> Iterator[Violation]:
    capabilities = context.at("capabilities")
    additions = capabilities.content.get("add")
    wrong = (
        [capability for capability in additions if capability not in allowed]
        if isinstance(additions, list)
        else []
    )
    if wrong:
        names = ", ".join(shown(str(capability)) for capability in wrong)
        yield capabilities.against("add", f"must not have {names}; {_either(allowed)}")


def _probe_hosts(pod: _Pod) -> Iterator[Violation]:
    for container in pod.containers:
        for handler in _HANDLERS:
            for way in ("httpGet", "tcpSocket"):
                yield from _must_be_one_of(container.at(*handler, way), "host", ())


def _apparmor(pod: _Pod) -> Iterator[Violation]:
    for key, value in pod.annotations.content.items():
        is_allowed = value in ("", "runtime/default") or str(value).startswith("localhost/")
        if key.startswith(_APPARMOR) and not is_allowed:
            field = f"{pod.annotations.field}[{key}]"
            problem = f"must not be {shown(str(value))}; allowed: runtime/default, localhost/*"
            yield Violation(field, problem, field)


def _selinux(pod: _Pod) -> Iterator[Violation]:
    for context in pod.all_contexts:
        options = context.at("seLinuxOptions")
        yield from _must_be_one_of(options, "type", _SELINUX_TYPES)
        yield from _must_be_one_of(options, "user", ())
        yield from _must_be_one_of(options, "role", ())


_BASELINE: Final[tuple[_Check, ...]] = (
    _untrue(_ALL_CONTEXTS, "hostProcess", "windowsOptions"),
    *(_untrue(_SPECS, key) for key in ("hostNetwork", "hostPID", "hostIPC")),
    _untrue(_CONTEXTS, "privileged"),
    _added_capabilities,
    _only(attrgetter("volumes"), "hostPath", (None,), "must not mount a directory of the node"),
    _only(attrgetter("ports"), "hostPort", (None, 0), "must not be set"),
    _probe_hosts,
    _apparmor,
    _one_of(_ALL_CONTEXTS, "type", _PROFILES, "appArmorProfile"),
    _selinux,
    _one_of(_CONTEXTS, "procMount", ("Default",)),
    _one_of(_ALL_CONTEXTS, "type", _PROFILES, "seccompProfile"),
    _one_of(attrgetter("sysctls"), "name", _SYSCTLS),
)

# ---- restricted ---------------------------------------------------------------------------------

_VOLUMES: Final = (
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
)


def _volume_types(pod: _Pod) -> Iterator[Violation]:
    for volume in pod.volumes:
        for source, value in volume.content.items():
            # The baseline has told a hostPath already.
            is_other = source not in ("name", "hostPath", *_VOLUMES)
            if is_other and value is not None:
                yield volume.against(source, f"must not be used; {_either(_VOLUMES)}")


def _run_as_non_root(pod: _Pod) -> Iterator[Violation]:
    of_pod = pod.context.content.get("runAsNonRoot")
    if of_pod not in (None, True):
        yield pod.context.against("runAsNonRoot", "must be true")
    for context in pod.contexts:
        value = context.content.get("runAsNonRoot")
        if not (value is True or (value is None and of_pod is True)):
            yield context.against("runAsNonRoot", "must be true here or for the pod")


def _run_as_user(pod: _Pod) -> Iterator[Violation]:
    for context in pod.all_contexts:
        if context.content.get("runAsUser") == 0:
            yield context.against("runAsUser", "must not be 0")


def _seccomp_is_set(pod: _Pod) -> Iterator[Violation]:
    """A profile must be set. The baseline has told the profiles that are set and not allowed."""
    if pod.is_windows or pod.context.at("seccompProfile").content.get("type") in _PROFILES:
        return
    for context in pod.contexts:
        profile = context.at("seccompProfile")
        if profile.content.get("type") in (None, ""):
            problem = f"must be set here or for the pod; {_either(_PROFILES)}"
            yield profile.against("type", problem)


def _dropped_capabilities(pod: _Pod) -> Iterator[Violation]:
    for context in pod.linux_contexts:
        capabilities = context.at("capabilities")
        drops = capabilities.content.get("drop")
        if not isinstance(drops, list) or "ALL" not in drops:
            yield capabilities.against("drop", "must have ALL")
        yield from _added(context, ("NET_BIND_SERVICE",))


_RESTRICTED: Final[tuple[_Check, ...]] = (
    _volume_types,
    _only(_LINUX_CONTEXTS, "allowPrivilegeEscalation", (False,), "must be false"),
    _run_as_non_root,
    _run_as_user,
    _seccomp_is_set,
    _dropped_capabilities,
)
