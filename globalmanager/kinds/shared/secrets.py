"""Secrets with which workers prove their identity to the LocalController of their node.

They are derived from the root key and not stored. A pod gets its secret, the LocalController only
the hash.
"""

import hashlib
import hmac

from edgeai.ids import Uid


def worker_secret(root_key: bytes, uid: Uid, role: str) -> str:
    """A secret of 64 hex digits. All workers of one role of one job share the secret."""
    # The uid separates a job from a later one of its name. Every replica, also after a restart,
    # derives the same secret, and nobody has to store it (decision 0002).
    return hmac.new(root_key, f"{uid}/{role}".encode(), hashlib.sha256).hexdigest()


def secret_hash(secret: str) -> str:
    """The sha256 of a secret in hex digits, as a WorkerGrant has it."""
    return hashlib.sha256(secret.encode()).hexdigest()
