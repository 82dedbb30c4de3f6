"""What the LocalController of a node itself reports of a Dataset or Model, as an entry of
.status.workers.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from edgeai.api.status import mapping

_REASON: Final = re.compile(r"[A-Za-z]([A-Za-z0-9]{0,62}[A-Za-z0-9])?")


def details_of(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    return mapping(entry.get("details"))


def is_present(entry: Mapping[str, Any], version: int) -> bool:
    return details_of(entry).get("generation") == str(version)


def reason_of(entry: Mapping[str, Any]) -> str:
    """The reason of a condition for the problem in the entry."""
    problem = str(details_of(entry).get("problem", ""))
    # The node writes this word. The API conventions demand the form of a reason.
    return problem if _REASON.fullmatch(problem) else "SourceFailed"
