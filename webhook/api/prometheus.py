"""Asks a Prometheus, within a time and a size, and reads what it says of the devices of pods.

It is not trusted: an answer may be late, endless, no answer at all, or hold numbers that cannot be
true. Nothing but the configured address is called, and redirects are not followed.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from math import isfinite
from pathlib import Path
from string import Template
from sys import intern
from threading import Timer
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from webhook.model import fields
from webhook.model.costs.devices import DeviceMeasure, DeviceSample
from webhook.model.fields import FieldError
from webhook.settings import PrometheusLabels, PrometheusSettings

TIMEOUT_SECONDS: Final = 2.0
"""For all of a query."""
MOST_BYTES: Final = 8 << 20
MOST_SAMPLES: Final = 20_000
_AT_ONCE: Final = 1 << 16
_OK: Final = 200
_LONGEST_TEXT: Final = 253
"""Of a namespace, a pod, a model; Kubernetes' names are no longer."""
_LARGEST: Final = {
    DeviceMeasure.MEMORY: float(1 << 20),
    DeviceMeasure.POWER: 10_000.0,
    DeviceMeasure.COMPUTE: 1.0,
    DeviceMeasure.BANDWIDTH: 1.0,
}
"""What no device exceeds: a TiB, ten kilowatts, all of the time."""


class PrometheusError(Exception):
    """It has not answered, or what it answered is no answer."""


def ask(settings: PrometheusSettings, measure: DeviceMeasure) -> tuple[DeviceSample, ...]:
    """Return what a measure's query answers.

    Raises:
        PrometheusError: there is no answer within 2 s and 8 MiB, or it cannot be read.

    """
    query = Template(getattr(settings.queries, measure)).safe_substitute(dict(settings.labels))
    text = _fetch(settings, f"/api/v1/query?{urlencode({'query': query})}")
    try:
        return read_samples(
            fields.from_json(text, "", longest=MOST_BYTES), measure, settings.labels
        )
    except FieldError as error:
        raise PrometheusError(f"its answer cannot be read: {error}") from None


def read_samples(
    source: Mapping[str, Any], measure: DeviceMeasure, labels: PrometheusLabels
) -> tuple[DeviceSample, ...]:
    """Read an answer; what names no pod is left out, and of too many the last.

    Raises:
        FieldError: it is no vector.

    """
    if fields.text(source, "status", "") != "success":
        raise FieldError("status", "expected success")
    data = fields.mapping(source, "data", "")
    if fields.text(data, "resultType", "data") != "vector":
        raise FieldError("data.resultType", "expected vector")
    samples = []
    for item in fields.sequence(data, "result", "data")[:MOST_SAMPLES]:
        sample = _sample(item, measure, labels)
        if sample is not None:
            samples.append(sample)
    return tuple(samples)


def _sample(item: Any, measure: DeviceMeasure, labels: PrometheusLabels) -> DeviceSample | None:
    if not isinstance(item, dict) or not isinstance(item.get("metric"), dict):
        return None
    metric = item["metric"]
    texts = [metric.get(name, "") for _, name in labels]
    if not all(isinstance(text, str) and len(text) <= _LONGEST_TEXT for text in texts):
        return None
    said = dict(zip(PrometheusLabels.model_fields, texts, strict=True))
    if not said["namespace"] or not said["pod"]:
        return None
    return DeviceSample(
        namespace=intern(said["namespace"]),
        pod=said["pod"],
        model=intern(said["model"].replace(" ", "-")),
        part=intern(said["part"]),
        value=_value(item.get("value"), _LARGEST[measure]),
    )


def _value(pair: Any, largest: float) -> float | None:
    """Return the value of a pair of time and value; None: it cannot be true."""
    if not (isinstance(pair, list) and len(pair) == 2 and isinstance(pair[1], str)):  # noqa: PLR2004
        return None
    try:
        value = float(pair[1])
    except ValueError:
        return None
    return value if isfinite(value) and 0 <= value <= largest else None


def _fetch(settings: PrometheusSettings, path: str) -> str:
    until = time.monotonic() + TIMEOUT_SECONDS
    try:
        connection = _connection(settings)
        connection.connect()
        # A time-out of the socket is for each read: who sends a byte a second would never meet it.
        guard = Timer(max(0.0, until - time.monotonic()), _end, [connection.sock])
        guard.daemon = True
        guard.start()
        try:
            connection.request("GET", _base(settings) + path, headers=_headers(settings))
            return _read(connection.getresponse(), until)
        finally:
            guard.cancel()
            connection.close()
    except (OSError, HTTPException, ValueError) as error:
        if time.monotonic() >= until:
            raise PrometheusError(f"no answer within {TIMEOUT_SECONDS:.0f} s") from None
        # Never the text alone: it may be empty, and that of a token's file names no secret.
        raise PrometheusError(f"{type(error).__name__}: {error}"[:200]) from None


def _connection(settings: PrometheusSettings) -> HTTPConnection:
    parts = urlsplit(settings.url)
    if parts.scheme == "http":
        return HTTPConnection(parts.netloc, timeout=TIMEOUT_SECONDS)
    context = ssl.create_default_context(cafile=settings.ca_file or None)
    return HTTPSConnection(parts.netloc, timeout=TIMEOUT_SECONDS, context=context)


def _base(settings: PrometheusSettings) -> str:
    return urlsplit(settings.url).path.rstrip("/")


def _headers(settings: PrometheusSettings) -> Mapping[str, str]:
    headers = {"Accept": "application/json"}
    if settings.token_file:
        token = Path(settings.token_file).read_text(encoding="ascii").strip()
        headers["Authorization"] = f"Bearer {token}"
    return headers


def _read(response: HTTPResponse, until: float) -> str:
    if response.status != _OK:
        raise PrometheusError(f"it answers {response.status}")
    content = bytearray()
    while part := response.read1(_AT_ONCE):
        content += part
        if len(content) > MOST_BYTES:
            raise PrometheusError(f"its answer has over {MOST_BYTES >> 20} MiB")
    # A connection that the guard has ended looks like an answer that is complete.
    if time.monotonic() >= until:
        raise TimeoutError
    return content.decode()


def _end(connected: socket.socket) -> None:
    try:
        connected.shutdown(socket.SHUT_RDWR)
    except OSError:
        # It has been closed meanwhile.
        return
