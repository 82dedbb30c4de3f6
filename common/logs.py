"""Structured logging: one JSON object a line on stderr, with the context bound once.

Called by each process's `main`. Messages are constant, data goes into fields; fields whose name
says that they are secret, and worker secrets inside URLs, are masked before they are written.
"""

import logging
import re
import sys
from collections.abc import MutableMapping
from typing import Any, Final, Literal, TextIO

# structlog loads rich where it is installed, 3 MiB, to draw tracebacks; JSON has no use for it.
_without_rich = sys.modules.setdefault("rich", None) is None  # type: ignore[arg-type]
import structlog  # noqa: E402

if _without_rich:
    del sys.modules["rich"]

bind = structlog.contextvars.bound_contextvars  # with bind(node=…): every line inside carries it

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
    """structlog processor: no secret reaches a log, whoever logs it."""
    for field, value in event.items():
        if _SECRET_FIELD.search(field):
            event[field] = MASK
        elif isinstance(value, str) and "/w/" in value:
            event[field] = _SECRET_PATH.sub(rf"\1{MASK}", value)
    return event


def configure(component: str, *, level: LogLevel = "info", stream: TextIO = sys.stderr) -> None:
    """Send this process's logs, and those of its libraries (warnings up), to `stream`.

    Args:
        component: "globalmanager", "localcontroller", …; stands in every line
    """
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
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(sort_keys=False),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(threshold)
    for library in ("aiohttp", "websockets", "asyncio", "kubernetes_asyncio"):
        # Below WARNING the Kubernetes client prints response bodies, Secrets among them.
        logging.getLogger(library).setLevel(max(threshold, logging.WARNING))
    structlog.contextvars.bind_contextvars(component=component)
