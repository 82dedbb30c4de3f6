"""The files of a job's SSH key pair, as OpenSSH reads them in ~/.ssh.

Called by `workers` and `launcher`. The key is derived from the root key and the uid of the job, so
every GlobalManager computes the same key, and a Secret that somebody has deleted comes back with
the key that the running pods have. Source of the format: OpenSSH, PROTOCOL.key.
"""

import base64
import hashlib
import textwrap
from typing import Final

from common.ids import Uid
from globalmanager.rules import ed25519
from globalmanager.rules.secrets import worker_secret

_KEY_TYPE: Final = b"ssh-ed25519"
_BLOCK_BYTES: Final = 8  # OpenSSH pads an unencrypted key to this size
_CLIENT_CONFIG: Final = "StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nLogLevel ERROR\n"
"""The pods of a job are new machines each time, so nobody can know their host keys before."""


def files(root_key: bytes, uid: Uid, comment: str) -> dict[str, str]:
    """File name -> content. Args: comment: the name of the key, for people"""
    seed = bytes.fromhex(worker_secret(root_key, uid, "ssh-key"))
    public = ed25519.public_key(seed)
    blob = _string(_KEY_TYPE) + _string(public)
    line = f"{_KEY_TYPE.decode()} {base64.b64encode(blob).decode()} {comment}\n"
    return {
        "id_rsa": _private_key(seed, public, blob, comment.encode()),
        "id_rsa.pub": line,
        "authorized_keys": line,
        "config": _CLIENT_CONFIG,
    }


def _private_key(seed: bytes, public: bytes, blob: bytes, comment: bytes) -> str:
    # Two equal numbers, random in OpenSSH, that tell a wrong passphrase. The key has no passphrase.
    check = hashlib.sha256(blob).digest()[:4]
    section = check + check
    section += _string(_KEY_TYPE) + _string(public) + _string(seed + public) + _string(comment)
    section += bytes(range(1, -len(section) % _BLOCK_BYTES + 1))
    head = b"openssh-key-v1\0" + _string(b"none") + _string(b"none") + _string(b"")
    encoded = base64.b64encode(head + _uint32(1) + _string(blob) + _string(section)).decode()
    lines = "\n".join(textwrap.wrap(encoded, 70))
    return f"-----BEGIN OPENSSH PRIVATE KEY-----\n{lines}\n-----END OPENSSH PRIVATE KEY-----\n"


def _uint32(number: int) -> bytes:
    return number.to_bytes(4, "big")


def _string(content: bytes) -> bytes:
    return _uint32(len(content)) + content
