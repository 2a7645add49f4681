"""Asks a Prometheus, within a time and a size, and reads what it says of pods and their devices.

It is not trusted: an answer may be late, endless, no answer at all, or hold numbers that cannot be
true. Nothing but the configured address is called, and redirects are not followed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from string import Template
from sys import intern
from typing import Any, Final

import urllib3

from webhook.api import calls
from webhook.api.kubernetes_api import TooLarge
from webhook.model import fields
from webhook.model.costs.devices import DeviceMeasure, DeviceSample, ServiceMeasure
from webhook.model.fields import FieldError
from webhook.model.policy.spec import ServingMetrics
from webhook.settings import PrometheusLabels, PrometheusSettings

MOST_SAMPLES: Final = 20_000
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
_LARGEST_OF_SERVICE: Final = {ServiceMeasure.REQUESTS: 1e6, ServiceMeasure.LATENCY: 3_600.0}
_OF_SERVICES: Final = {
    ServiceMeasure.REQUESTS: "sum by (namespace, pod) (rate({}[5m]))",
    ServiceMeasure.LATENCY: "histogram_quantile(0.95, "
    "sum by (namespace, pod, le) (rate({}_bucket[5m])))",
}
"""The targets' own labels, which Prometheus gives to whatever it scrapes of pods."""


class PrometheusError(Exception):
    """It has not answered, or what it answered is no answer."""


def ask(settings: PrometheusSettings, measure: DeviceMeasure) -> tuple[DeviceSample, ...]:
    """Return what a measure's query answers.

    Raises:
        PrometheusError: there is no answer within 3 s and 8 MiB, or it cannot be read.

    """
    promql = Template(getattr(settings.queries, measure)).safe_substitute(dict(settings.labels))
    return _samples(settings, promql, _LARGEST[measure], settings.labels)


def ask_service(
    settings: PrometheusSettings, measure: ServiceMeasure, metrics: ServingMetrics
) -> tuple[DeviceSample, ...]:
    """Return what the pods of services did in the last five minutes, by their own metrics.

    Raises:
        PrometheusError: as for ``ask``.

    """
    promql = _OF_SERVICES[measure].format(getattr(metrics, measure))
    return _samples(settings, promql, _LARGEST_OF_SERVICE[measure], PrometheusLabels())


def _samples(
    settings: PrometheusSettings, promql: str, largest: float, labels: PrometheusLabels
) -> tuple[DeviceSample, ...]:
    answer = query(
        settings.url,
        promql,
        ca_file=settings.ca_file,
        token_file=settings.token_file,
        seconds=calls.SHORT_SECONDS,
    )
    try:
        return read_samples(answer, largest, labels)
    except FieldError as error:
        raise PrometheusError(f"its answer cannot be read: {error}") from None


def query(
    url: str, promql: str, *, ca_file: str = "", token_file: str = "", seconds: float
) -> Mapping[str, Any]:
    """Return what the Prometheus at *url* answers to an instant query.

    One that sends its headers byte by byte keeps whoever asks waiting; its body has *seconds*.

    Raises:
        PrometheusError: there is no answer in time, or it is no JSON object.

    """
    until = time.monotonic() + seconds
    try:
        with (
            urllib3.PoolManager(ca_certs=ca_file or None) as pool,
            pool.request(
                "GET",
                f"{url.rstrip('/')}/api/v1/query",
                fields={"query": promql},
                headers=_headers(token_file),
                timeout=urllib3.Timeout(total=seconds),
                **calls.ONCE,
            ) as response,
        ):
            if response.status != _OK:
                raise PrometheusError(f"it answers {response.status}")
            text = calls.read_answer(response, url, until=until).decode()
    except TooLarge:
        raise PrometheusError(f"its answer has over {calls.MOST_BYTES >> 20} MiB") from None
    except (urllib3.exceptions.ReadTimeoutError, TimeoutError):
        raise PrometheusError(f"no answer within {seconds:g} s") from None
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise PrometheusError(calls.why_unreached(error, url)[:200]) from None
    except UnicodeDecodeError:
        raise PrometheusError("its answer cannot be read: expected UTF-8") from None
    try:
        return fields.from_json(text, "", longest=calls.MOST_BYTES)
    except FieldError as error:
        raise PrometheusError(f"its answer cannot be read: {error}") from None


def _headers(token_file: str) -> Mapping[str, str]:
    headers = {"Accept": "application/json"}
    if token_file:
        token = Path(token_file).read_text(encoding="utf-8", errors="replace").strip()
        if not (token.isascii() and token.isprintable()):
            # An error of the HTTP library would quote it.
            raise PrometheusError(f"{token_file}: expected a token, one line of ASCII")
        headers["Authorization"] = f"Bearer {token}"
    return headers


def read_samples(
    source: Mapping[str, Any], largest: float, labels: PrometheusLabels
) -> tuple[DeviceSample, ...]:
    """Read an answer; what names no pod is left out, and of too many the last.

    What is larger than *largest* cannot be true.

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
        sample = _sample(item, largest, labels)
        if sample is not None:
            samples.append(sample)
    return tuple(samples)


def _sample(item: Any, largest: float, labels: PrometheusLabels) -> DeviceSample | None:
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
        value=_value(item.get("value"), largest),
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
