"""What Chart.yaml promises of older API servers that no test starts."""

import re
from pathlib import Path

import yaml

CHART = Path(__file__).resolve().parents[2] / "helm"
# https://kubernetes.io/docs/reference/using-api/cel: in API servers from 1.28 on, and so to be
# stored from 1.29 on. What came later: ip, cidr, format, sets, semver, and macros of two variables.
KNOWN_IN_1_29 = {
    *("all", "exists", "exists_one", "filter", "has", "map"),
    *("matches", "size", "split", "startsWith", "endsWith", "contains", "lowerAscii"),
    *("type", "int", "string", "duration", "timestamp"),
    *("quantity", "isQuantity", "add", "sub", "isGreaterThan", "isLessThan", "compareTo"),
    "one",  # The end of exists_one, where a line is broken.
}


def expressions(node):
    if isinstance(node, dict):
        for key, value in node.items():
            if key in ("rule", "expression", "messageExpression") and isinstance(value, str):
                yield value
            else:
                yield from expressions(value)
    elif isinstance(node, list):
        for each in node:
            yield from expressions(each)


def functions(expression):
    without_texts = re.sub(r"'[^']*'|\"[^\"]*\"", "''", expression)
    return set(re.findall(r"([A-Za-z_]+)\(", without_texts)) - {"in"}


def test_the_chart_names_the_oldest_version():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())

    assert chart["kubeVersion"] == ">=1.29.0-0"


def test_cel_uses_no_function_that_the_oldest_version_does_not_know(render):
    found = [text for each in render().objects.values() for text in expressions(each)]

    assert len(found) > 50
    assert set().union(*map(functions, found)) <= KNOWN_IN_1_29
