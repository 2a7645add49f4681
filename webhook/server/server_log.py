"""gunicorn's own lines as JSON like all others; of an error class and place, never the text."""

from __future__ import annotations

import json
import logging
from typing import Any

from gunicorn.glogging import Logger

from webhook.model import faults


class ServerLog(Logger):  # type: ignore[misc]
    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        for handler in self.error_log.handlers:
            handler.setFormatter(_JsonLine())

    def info(self, msg: str, *args: Any, **kwargs: Any) -> None:
        if msg.startswith("Listening at"):
            # gunicorn takes us for plain HTTP: it is not told of the certificates.
            args = tuple(str(arg).replace("http:", "https:") for arg in args)
        super().info(msg, *args, **kwargs)


class _JsonLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "ts": round(record.created, 3),
            "level": record.levelname.lower(),
            "process": "server",
            "msg": record.getMessage(),
        }
        if record.exc_info and record.exc_info[1]:
            line["error"] = faults.describe(record.exc_info[1])
        return json.dumps(line, separators=(",", ":"))
