"""Gets or creates the root key. edgeai derives the secrets of all workers from the root key.

A Secret in the GlobalManager's namespace holds the root key. So all replicas derive the same worker
secrets, also after a restart. The root key never appears in a log or an error.
"""

import asyncio
import base64
import binascii
import secrets
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

from common import logs
from edgeai.api.resources import SECRETS, Object, ObjectRef
from edgeai.backoff import Backoff
from edgeai.errors import SettingsError, Unavailable
from edgeai.kube.client import KubeClient
from edgeai.kube.errors import ApiError, NotFound

log = logs.get_logger(__name__)

T = TypeVar("T")

ProblemListener = Callable[[str], None]

SECRET_NAME: Final = "edgeai-worker-key"
KEY_FIELD: Final = "key"
KEY_BYTES: Final = 32


def ignore(_problem: str) -> None:
    """A ProblemListener that does nothing."""


async def get_root_key(
    client: KubeClient, *, namespace: str, on_problem: ProblemListener = ignore
) -> bytes:
    """Get or create the root key, 32 bytes. The function waits until the Kubernetes API answers.

    The first GlobalManager of a cluster creates the key from random bytes.

    Args: on_problem: called with the problem while the API is unavailable or refuses the request
    Raises: SettingsError when the Secret does not hold a root key
    """
    ref = ObjectRef(SECRETS, namespace, SECRET_NAME)
    secret = await retry_until_answered(
        "worker key", partial(_get_or_create, client, ref), on_problem=on_problem
    )
    return _key_of(ref, secret)


async def _get_or_create(client: KubeClient, ref: ObjectRef) -> Object:
    try:
        return await client.get(ref)
    except NotFound:
        key = base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()
        secret = {
            "metadata": {"name": ref.name, "namespace": ref.namespace},
            "type": "Opaque",
            "data": {KEY_FIELD: key},
        }
        # Two replicas may start at the same time. The slower replica gets AlreadyExists here. Its
        # next attempt reads the key that the faster replica has written.
        new = await client.create(SECRETS, secret)
        log.info("worker key created", resource=str(ref))
        return new


def _key_of(ref: ObjectRef, secret: Object) -> bytes:
    try:
        key = base64.b64decode((secret.get("data") or {})[KEY_FIELD], validate=True)
    except (KeyError, TypeError, binascii.Error):
        key = b""
    if len(key) != KEY_BYTES:
        raise SettingsError(
            f"Secret {ref.namespace}/{ref.name}",
            f"field {KEY_FIELD!r} is not {KEY_BYTES} bytes in base64; delete the Secret to have "
            "a new key made (running workers then need new pods)",
        )
    return key


async def retry_until_answered(
    step: str, attempt: Callable[[], Awaitable[T]], *, on_problem: ProblemListener = ignore
) -> T:
    """Call `attempt` until it returns a result.

    The function also retries after a refusal of the API. A refusal means that a right, a credential
    or a namespace is missing. When it is there, a waiting process goes on sooner than a new one.

    Args:
        step: name of the step, for the log
        on_problem: called with the problem after each failed attempt, for /readyz
    Raises: every exception of `attempt` except Unavailable and ApiError
    """
    logged = ""
    backoff = Backoff(base_s=0.2, max_s=5.0, floor_s=0.05)
    while True:
        try:
            return await attempt()
        except (Unavailable, ApiError) as error:
            delay_s = backoff.next_s(at_least_s=getattr(error, "retry_after_s", 0.0))
            on_problem(str(error))
            if str(error) != logged:
                log.warning("start waits for the Kubernetes API", step=step, problem=str(error))
            logged = str(error)
            await asyncio.sleep(delay_s)
