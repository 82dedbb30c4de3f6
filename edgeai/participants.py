"""What GlobalManager and aggregator compute alike: the secrets and weights of trainers.

The GlobalManager gives each trainer its own secret, and the aggregator the secret of the job. The
aggregator derives each trainer's secret from that. A trainer knows neither it nor others'.
"""

import hashlib
import hmac
from collections.abc import Mapping


def participant_secret(job_secret: str, name: str) -> str:
    """The secret of the trainer `name`: 64 hex digits."""
    text = f"edgeai participant/{name}".encode()
    return hmac.new(job_secret.encode(), text, hashlib.sha256).hexdigest()


def weights(claims: Mapping[str, int], counts: Mapping[str, int]) -> dict[str, int]:
    """The number of samples with which each trainer counts in a mean.

    A trainer counts with the number that it claims, at most the number that its node has counted in
    its Dataset. Without a count of its Dataset, the bound is the largest count among all trainers;
    without any count, the lower median of the claims. So no trainer becomes the model by the number
    that it claims (docs/decisions/0029-weights-without-a-count.md).

    Args:
        claims: trainer -> number of samples that it claims to have
        counts: trainer -> number of samples in its Dataset; also trainers without a claim
    """
    positive = sorted(number for number in claims.values() if number > 0) or [0]
    lower_median = positive[(len(positive) - 1) // 2]
    bound = max(counts.values(), default=0) or lower_median
    return {name: min(number, counts.get(name, bound)) for name, number in claims.items()}
