"""Secrets by which workers prove to their node's LocalController who they are.

A secret is derived from the root key, so nothing is stored. The pod gets the secret, the edge only
its hash. Called by the kinds.
"""

import hashlib
import hmac

from common.ids import Uid


def worker_secret(root_key: bytes, uid: Uid, role: str) -> str:
    """64 hex digits; all workers of one role of one job share it."""
    return hmac.new(root_key, f"{uid}/{role}".encode(), hashlib.sha256).hexdigest()


def secret_hash(secret: str) -> str:
    """sha256 in hex, as a WorkerGrant carries it."""
    return hashlib.sha256(secret.encode()).hexdigest()
