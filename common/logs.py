"""Structured logging: each line on stderr is one JSON object.

The `main` of each process calls `configure`. The text of a log message is constant; its data is in
fields. `mask_secrets` masks fields such as "token", and the secrets of workers in URLs.
"""

import logging
import re
import sys
from collections.abc import MutableMapping
from typing import Any, Final, Literal, TextIO

# structlog imports these if installed; logs of JSON need none: rich takes 3 MiB, greenlet 1 MiB.
_unused = {"rich", "greenlet"} - sys.modules.keys()
sys.modules |= dict.fromkeys(_unused)  # type: ignore[arg-type]
import structlog  # noqa: E402

for _name in _unused:
    del sys.modules[_name]

bind = structlog.contextvars.bound_contextvars  # `with bind(node=…)` adds a field to log lines

LogLevel = Literal["debug", "info", "warning", "error"]
MASK: Final = "***"
_SECRET_FIELD: Final = re.compile(
    r"token|secret|passw|authorization|credential|private_?key", re.IGNORECASE
)
_SECRET_PATH: Final = re.compile(r"(/w/)[0-9A-Za-z_-]{16,}")


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(name)
    return logger


def mask_secrets(
    _logger: Any, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """A structlog processor that replaces the secrets of a log line by MASK."""
    for field, value in event.items():
        if _SECRET_FIELD.search(field):
            event[field] = MASK
        elif isinstance(value, str) and "/w/" in value:
            event[field] = _SECRET_PATH.sub(rf"\1{MASK}", value)
    return event


def configure(component: str, *, level: LogLevel = "info", stream: TextIO = sys.stderr) -> None:
    """Send the logs of this process, and what its libraries warn of. Args: component: its name"""
    threshold = logging.getLevelNamesMapping()[level.upper()]
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        mask_secrets,
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.ExtraAdder(["target"]), *shared],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(sort_keys=False),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(threshold)
    for library in ("aiohttp", "websockets", "asyncio"):
        # Below level WARNING they log headers and messages, also those with secrets.
        logging.getLogger(library).setLevel(max(threshold, logging.WARNING))
    structlog.contextvars.bind_contextvars(component=component)
