"""The patterns of texts in our custom resources, and how each is said to a person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

LONGEST_LABEL: Final = 63
LONGEST_MESSAGE: Final = 103
"""What is left of a warning of less than 120 characters after ``kueue-fallback: ``."""
_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_NAME = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
DURATION: Final = r"^([0-9]{1,5}(\.[0-9]{1,3})?(h|m|s|ms))+$"
SUBDOMAIN: Final = f"^{_SUBDOMAIN}$"
SUBDOMAIN_OR_NONE: Final = f"^({_SUBDOMAIN})?$"
LABEL: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
NAME: Final = f"^{_NAME}$"
LABEL_VALUE: Final = f"^({_NAME})?$"
QUALIFIED_NAME: Final = f"^({_SUBDOMAIN}/)?{_NAME}$"
QUALIFIED_NAME_OR_NONE: Final = f"^(({_SUBDOMAIN}/)?{_NAME})?$"
ENV_NAME: Final = r"^[-._a-zA-Z][-._a-zA-Z0-9]*$"
IMAGE: Final = r"^\S*$"
FLAG: Final = r"^[^\s=]+$"
ONE_LINE_OR_NONE: Final = r"^([!-~]([ -~]*[!-~])?)?$"
RUNTIME_CLASS: Final = f"^(Keep|Remove|{_SUBDOMAIN})$"
QUANTITY: Final = (
    r"^[+]?([0-9]+([.][0-9]*)?|[.][0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][-+]?[0-9]{1,2})?$"
)
COUNT: Final = r"^[1-9][0-9]{0,8}$"
METRIC: Final = r"^[a-zA-Z_:][a-zA-Z0-9_:]*$"
EXTERNAL_METRIC: Final = r"^[a-zA-Z_:][-a-zA-Z0-9_:.]*$"
DECIMAL: Final = r"^[0-9]{1,9}([.][0-9]{1,6})?$"
HOURS: Final = r"^([01][0-9]|2[0-3]):[0-5][0-9]-(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$"
DATE: Final = r"^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])$"
TIME_ZONE: Final = r"^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+){0,2}$"
CURRENCY: Final = r"^([A-Z]{3})?$"
FILE_KEY: Final = r"^[-._a-zA-Z0-9]+$"

_OBJECT_NAME = "lower-case letters, digits, - and ."
_KEY = "a key such as team or example.com/team"
FORMS: Final[Mapping[str, str]] = {
    DURATION: "a duration such as 90s or 1h30m",
    SUBDOMAIN: _OBJECT_NAME,
    SUBDOMAIN_OR_NONE: _OBJECT_NAME,
    LABEL: "lower-case letters, digits and -",
    NAME: "letters, digits, -, _ and .",
    LABEL_VALUE: "letters, digits, -, _ and .",
    QUALIFIED_NAME: _KEY,
    QUALIFIED_NAME_OR_NONE: _KEY,
    IMAGE: "no space",
    ONE_LINE_OR_NONE: "one line of ASCII without spaces at its ends",
    FLAG: "a flag such as --steps, without its value",
    ENV_NAME: "the name of an environment variable",
    RUNTIME_CLASS: "Keep, Remove or the name of a RuntimeClass",
    COUNT: "a whole number of at least 1",
    METRIC: "the name of a metric in Prometheus",
    EXTERNAL_METRIC: "the name of an external metric",
    DECIMAL: "a number that is not negative, such as 3900 or 95.7, with at most 6 decimals",
    HOURS: "hours such as 09:00-17:30; 22:00-06:00 goes past midnight",
    DATE: "a date such as 2026-06-01",
    TIME_ZONE: "the name of a time zone such as Asia/Seoul",
    CURRENCY: "the three letters of a currency such as EUR",
    FILE_KEY: "the key of a ConfigMap",
    QUANTITY: "a quantity that is not negative, such as 4, 500m or 6Gi",
}
