"""The secret by which a trainer proves its name to the aggregator of its federation.

The GlobalManager gives each trainer its own secret, and the aggregator the secret of the job. The
aggregator derives the secret of any trainer from the secret of the job. A trainer knows neither the
secret of the job nor the secret of another trainer.
"""

import hashlib
import hmac


def participant_secret(job_secret: str, name: str) -> str:
    """The secret of the trainer `name`: 64 hex digits."""
    text = f"edgeai participant/{name}".encode()
    return hmac.new(job_secret.encode(), text, hashlib.sha256).hexdigest()
