"""Credentials of edge nodes, as files that an administrator takes there: a directory for each node.

What is there stays, so the same command may be typed again for new nodes. A certificate that the
GlobalManager would refuse, or that ends soon, is made anew.
"""

import os
import secrets
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Final

from edgeai.cli.credentials.certificates import Pair, issue_node, node_problem_of
from edgeai.errors import EdgeAIError

Say = Callable[[str], None]
"""Prints one line for the user."""

PLACE: Final = "/etc/edgeai/node"


class CredentialsError(EdgeAIError):
    """No credential can be made. What was made stays, and the same command goes on from there."""


class NodeFiles:
    """Args: directory: gets one directory for each node"""

    def __init__(self, directory: Path, say: Say) -> None:
        self._directory = directory
        self._say = say

    def certificate(self, authority: Pair, node: str, now: datetime) -> None:
        """Write tls.crt and tls.key, unless good ones are there. Raises: CredentialsError"""
        certificate = self._read(node, "tls.crt")
        if certificate is not None:
            problem = node_problem_of(certificate, authority, now)
            if not problem:
                self._keep(node, "tls.crt")
                return
            self._say(f"{self._directory / node / 'tls.crt'} {problem}; making a new one")
        pair = issue_node(authority, node, now)
        self._write(node, "tls.key", pair.key)
        self._write(node, "tls.crt", pair.certificate)  # last: both are there when this one is

    def token(self, node: str) -> str:
        """The token in the file `token`, a new one if there is none. Raises: CredentialsError"""
        token = self._read(node, "token")
        if token is not None:
            self._keep(node, "token")
            return token
        token = secrets.token_urlsafe(32)
        self._write(node, "token", token)
        return token

    def _read(self, node: str, name: str) -> str | None:
        path = self._directory / node / name
        try:
            return path.read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise _unusable(node, error) from error

    def _keep(self, node: str, name: str) -> None:
        path = self._directory / node / name
        self._say(f"{path} is there already, and stays as it is")

    def _write(self, node: str, name: str, text: str) -> None:
        """A file that only its owner may read. It is whole when it has its name."""
        path = self._directory / node / name
        part = path.with_suffix(".part")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            part.unlink(missing_ok=True)  # of a command that was killed here
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            with os.fdopen(os.open(part, flags, 0o600), "w", encoding="utf-8") as file:
                file.write(text)
            part.replace(path)
        except OSError as error:
            raise _unusable(node, error) from error
        self._say(f"wrote {path}; copy it to {PLACE} of node {node}")


def _unusable(node: str, error: Exception) -> CredentialsError:
    return CredentialsError(f"credentials of node {node}: {error}; name another directory")
