"""Worker secrets: derived, and different for each job and role."""

import hashlib
import hmac

from edgeai.ids import Uid
from globalmanager.kinds.shared.secrets import secret_hash, worker_secret

KEY = bytes(range(32))


def test_the_secret_is_the_hmac_of_uid_and_role() -> None:
    expected = hmac.digest(KEY, b"uid-1/edge", "sha256").hex()
    assert worker_secret(KEY, Uid("uid-1"), "edge") == expected
    assert len(expected) == 64


def test_another_key_uid_or_role_makes_another_secret() -> None:
    secrets = {
        worker_secret(KEY, Uid("uid-1"), "edge"),
        worker_secret(KEY, Uid("uid-1"), "cloud"),
        worker_secret(KEY, Uid("uid-2"), "edge"),
        worker_secret(b"another", Uid("uid-1"), "edge"),
    }
    assert len(secrets) == 4


def test_the_edge_learns_only_the_hash() -> None:
    assert secret_hash("abc") == hashlib.sha256(b"abc").hexdigest()
