"""The .status that ScaleOut and ScaleIn share.

Called by the kinds scaleout and scalein for their CRDs, and by trainingjob, which writes the
status of the scalers that it executes.
"""

from typing import Annotated

import msgspec

from globalmanager.rules.status import LIST_BY_TYPE, Time
from globalmanager.rules.training.forms import JobCondition


class ScalerStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The status of one scaler."""

    phase: str = ""
    """A ScalerState."""
    conditions: Annotated[list[JobCondition], LIST_BY_TYPE] = []
    """In the order of the changes, the oldest first."""
    start_time: Time | None = None
    completion_time: Time | None = None
    observed_generation: int = 0
