"""Reads the settings and runs the main function of the examples' worker scripts."""

import logging
import os
import sys
from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec

from edgeai.errors import SettingsError

Settings = TypeVar("Settings", bound=msgspec.Struct)


def run(main: Callable[[Mapping[str, str]], None]) -> None:
    """Run `main` with the environment of this process. Exit with code 2 for a wrong variable."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        main(os.environ)
    except SettingsError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


def read(environ: Mapping[str, str], settings: type[Settings]) -> Settings:
    """Read a script's settings from its environment variables. An empty variable counts as unset.

    Raises: SettingsError
    """
    names = {field.encode_name for field in msgspec.structs.fields(settings)}
    values = {name: environ[name] for name in names if environ.get(name)}
    try:
        return msgspec.convert(values, settings, strict=False)
    except msgspec.ValidationError as error:
        # The error text names the variable: "… - at `$.NAME`", "missing required field `NAME`".
        raise SettingsError("environment variable", str(error)) from error
