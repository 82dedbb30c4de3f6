"""When the client certificate of a node ends, in words, and what to do.

The console and `edgeai doctor` say it in the same words. Pure.
"""

from datetime import date, timedelta
from typing import Final

ENDS_SOON: Final = timedelta(days=30)
"""From then on people are told, and `edgeai credentials` renews what it has created."""

NODE_REMEDY: Final = (
    "put a new tls.crt and tls.key into /etc/edgeai/node of the node: `edgeai credentials "
    "--certificates DIR` writes them into a new DIR; the LocalController reads them by itself. On "
    "KubeEdge edgecore renews its own: see its log (docs/identity.md)"
)


def ends_soon(ends_on: date, today: date) -> bool:
    return ends_on - today < ENDS_SOON


def end_in_words(ends_on: date, today: date) -> str:
    """ "ends in 12 days, on 2026-12-05" """
    days = (ends_on - today).days
    if days < 0:
        return f"ended on {ends_on}"
    if days == 0:
        return "ends today"
    return f"ends in {days} day{'' if days == 1 else 's'}, on {ends_on}"
