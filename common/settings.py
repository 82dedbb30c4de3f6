"""Reads a component's settings: flags > environment > YAML file > default.

A component declares its settings as the fields of one frozen msgspec.Struct. The text below a field
is its meaning, with the unit. A field is Annotated with Env if the name of its environment variable
is not EDGEAI_<FIELD>. The struct defines the flags (`edge_address` →
`--edge-address`), the YAML keys (`edgeAddress`), `--help` and docs/configuration.md. An unknown
flag or key is an error that suggests the most similar known name.

A flag or variable has its value as text: numbers and booleans as in YAML, a list as comma-separated
items, a map as comma-separated `key=value`.
"""

import argparse
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn, TypeVar, get_args, get_origin
from urllib.parse import urlsplit

import msgspec

from common.field_texts import field_texts
from edgeai.errors import SettingsError

CONFIG_FLAG: Final = "--config"

S = TypeVar("S", bound=msgspec.Struct)


class Env(msgspec.Struct, frozen=True):
    """The name of a setting's environment variable."""

    name: str


class Field(msgspec.Struct, frozen=True):
    """One setting, with its name as a field, a flag, a variable and a YAML key."""

    name: str  # name of the struct's field, for example edge_address
    type: Any
    default: Any  # msgspec.NODEFAULT: the setting is required
    env: str
    owner: type[msgspec.Struct]

    @property
    def help(self) -> str:
        """The meaning of the setting. Read from the source, so not at each start of a process."""
        return field_texts(self.owner.__mro__).get(self.name, "")

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def key(self) -> str:
        first, *rest = self.name.split("_")
        return first + "".join(word.capitalize() for word in rest)

    @property
    def is_required(self) -> bool:
        return self.default is msgspec.NODEFAULT

    def type_text(self) -> str:
        """The type in words for people, for example "number", "list", "ws | wss"."""
        type_ = _without_none(self.type)
        if get_origin(type_) is typing.Literal:
            return " | ".join(map(str, get_args(type_)))
        plain = get_origin(type_) or type_
        names = {int: "integer", float: "number", bool: "true | false", Path: "path"}
        names |= {str: "text", list: "list", tuple: "list", dict: "map"}
        return names.get(plain, str(plain))


def _without_none(type_: Any) -> Any:
    """`Path` for `Path | None`. None means that the setting is not given; no user can write it."""
    if isinstance(type_, types.UnionType):
        (type_,) = (arg for arg in get_args(type_) if arg is not types.NoneType)
    return type_


def fields_of(type_: type[msgspec.Struct]) -> tuple[Field, ...]:
    hints = typing.get_type_hints(type_, include_extras=True)
    return tuple(_field(type_, info, hints[info.name]) for info in msgspec.structs.fields(type_))


def _field(owner: type[msgspec.Struct], info: msgspec.structs.FieldInfo, hint: Any) -> Field:
    env = f"EDGEAI_{info.name.upper()}"
    if get_origin(hint) is Annotated:
        hint, env = hint.__origin__, hint.__metadata__[0].name
    default = info.default
    if info.default_factory is not msgspec.NODEFAULT:
        default = info.default_factory()
    return Field(info.name, hint, default, env, owner)


def load(
    type_: type[S],
    *,
    prog: str,
    argv: Sequence[str],
    env: Mapping[str, str],
    description: str = "",
) -> S:
    """Read the settings of one process.

    Args: argv: without the program's name; env: usually os.environ
    Raises: SettingsError, which names the flag, variable or key; SystemExit(0) for --help
    """
    fields = fields_of(type_)
    flags = _parse_flags(fields, prog, argv, description)
    config = flags.pop("config", None) or env.get("EDGEAI_CONFIG", "")
    values = _from_file(fields, Path(config)) if config else {}
    for field in fields:
        # An empty variable counts as not set: some manifests set unused variables to "".
        if env.get(field.env):
            values[field.name] = _parse(field, env[field.env], f"environment {field.env}")
        if field.name in flags:
            values[field.name] = _parse(field, flags[field.name], f"flag {field.flag}")
    for field in fields:
        if field.is_required and field.name not in values:
            raise SettingsError(
                f"flag {field.flag}",
                f"is required: {field.help} (or set {field.env}, or {field.key} in the "
                "configuration file)",
            )
    return type_(**values)


class _Parser(argparse.ArgumentParser):
    """Raises SettingsError for a wrong command line, where argparse would end the process."""

    def error(self, message: str) -> NoReturn:
        raise SettingsError("command line", message)


def _parse_flags(
    fields: Sequence[Field], prog: str, argv: Sequence[str], description: str
) -> dict[str, str]:
    parser = _Parser(
        prog=prog,
        description=description,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
        epilog="Each flag may also be given in the environment or the configuration file.",
    )
    parser.add_argument(CONFIG_FLAG, metavar="PATH", help="YAML file with settings")
    is_help = not {"-h", "--help"}.isdisjoint(argv)
    for field in fields:
        text = _help(field) if is_help else None
        parser.add_argument(field.flag, dest=field.name, metavar="VALUE", help=text)
    values, unknown = parser.parse_known_args(list(argv))
    if unknown:
        names = [field.flag for field in fields] + [CONFIG_FLAG]
        raise SettingsError(f"flag {unknown[0]}", "is unknown" + suggest(unknown[0], names))
    return dict(vars(values))


def _help(field: Field) -> str:
    default = "required" if field.is_required else f"default: {field.default!s}"
    return f"{field.help} [{field.env}; {default}]".replace("%", "%%")


def suggest(word: str, names: Sequence[str]) -> str:
    """The end of an error about an unknown name: the most similar known name, or all of them."""
    import difflib  # here, because only an error needs it: 0.2 MiB

    near = difflib.get_close_matches(word.partition("=")[0], names, n=1)
    return f"; did you mean {near[0]}?" if near else f"; known are {', '.join(names)}"


def _from_file(fields: Sequence[Field], path: Path) -> dict[str, Any]:
    import yaml  # here, because yaml takes 1 MiB, and only a file needs it

    source = f"configuration file {path}"
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(source, f"cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise SettingsError(source, f"is not valid YAML: {' '.join(str(error).split())}") from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise SettingsError(source, "must be a map of keys")
    by_key = {field.key: field for field in fields}
    values = {}
    for key, value in document.items():
        if key not in by_key:
            raise SettingsError(source, f"key {key!r} is unknown" + suggest(str(key), [*by_key]))
        field = by_key[key]
        values[field.name] = _convert(field, value, f"{source}, key {key}")
    return values


def _parse(field: Field, text: str, source: str) -> Any:
    origin = get_origin(field.type)
    if origin in (list, tuple):
        return _convert(field, [item.strip() for item in text.split(",") if item.strip()], source)
    if origin is dict:
        pairs = [item.partition("=") for item in text.split(",") if item.strip()]
        if not all(equals for _, equals, _ in pairs):
            raise SettingsError(source, f"{text!r} is not a list of key=value")
        return _convert(field, {key.strip(): value.strip() for key, _, value in pairs}, source)
    return _convert(field, text, source)


def _convert(field: Field, value: Any, source: str) -> Any:
    try:
        return msgspec.convert(value, field.type, strict=False, dec_hook=_decode_path)
    except (msgspec.ValidationError, ValueError) as error:
        raise SettingsError(source, f"{value!r} is no {field.type_text()}: {error}") from error


def _decode_path(type_: type, value: Any) -> Any:
    if type_ is not Path:
        raise NotImplementedError(type_)
    if not isinstance(value, str):
        raise ValueError("expected text")
    return Path(value).expanduser()


def flag_error(name: str, problem: str) -> SettingsError:
    """Args: name: of the struct's field, for example edge_address"""
    return SettingsError(f"flag --{name.replace('_', '-')}", problem)


def split_address(text: str, source: str) -> tuple[str, int]:
    """Split "host:port" or "[v6]:port" into (host, port). Raises: SettingsError naming `source`"""
    host, colon, port = text.rpartition(":")
    if not (colon and host and port.isdecimal() and int(port) <= 65535):
        raise SettingsError(source, f"{text!r} is not HOST:PORT, port 0-65535")
    return host.strip("[]"), int(port)


def check_url(source: str, url: str, *, like: str) -> None:
    """Raises: SettingsError unless `url` is the address of an HTTP server, without credentials"""
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_url = False
    if not is_url or "@" in parts.netloc or parts.query or parts.fragment:
        raise SettingsError(source, f"is not a URL like {like}, without credentials")
