"""The files of a job's SSH key pair, as OpenSSH reads them in ~/.ssh.

The key is derived from the root key and the uid of the job, so every GlobalManager computes the
same key, and a Secret that somebody has deleted comes back with the key that the running pods have.
"""

from typing import Final

from edgeai.ids import Uid
from globalmanager.kinds.shared.secrets import worker_secret

_CLIENT_CONFIG: Final = "StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nLogLevel ERROR\n"
"""The pods of a job are new machines each time, so nobody can know their host keys before."""


def files(root_key: bytes, uid: Uid, comment: str) -> dict[str, str]:
    """File name -> content. Takes milliseconds. Args: comment: the name of the key, for people"""
    # Only a cluster with TrainingJobs needs the library, which takes 10 MiB of memory.
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    seed = bytes.fromhex(worker_secret(root_key, uid, "ssh-key"))
    key = Ed25519PrivateKey.from_private_bytes(seed)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    line = f"{public.decode()} {comment}\n"
    return {
        # ssh looks for a key under this name by itself, of whatever kind the key is.
        "id_rsa": private.decode(),
        "id_rsa.pub": line,
        "authorized_keys": line,
        "config": _CLIENT_CONFIG,
    }
