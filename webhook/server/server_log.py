"""gunicorn's own log lines as JSON; of an error only its class and place, never its text."""

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
            # gunicorn does not know of the certificates, and so logs plain HTTP.
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
