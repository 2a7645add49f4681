"""The chart's README, and the comments that it is made of."""

import yaml

from hack import chart_readme


def test_the_readme_is_current():
    assert chart_readme.TARGET.read_text() == chart_readme.text(), "run python -m hack.chart_readme"


def test_each_value_has_a_comment_in_whole_sentences():
    source = (chart_readme.CHART / "values.yaml").read_text()
    described = {value.path: value.text for value in chart_readme.values(source)}

    undescribed = [
        path
        for path in _leaves(yaml.safe_load(source))
        if not any(path == known or path.startswith(f"{known}.") for known in described)
    ]
    assert undescribed == []
    assert [path for path, text in described.items() if not text.endswith(".")] == []
    assert [path for path, text in described.items() if not text[0].isupper()] == []


def _leaves(found, path=""):
    if not isinstance(found, dict) or not found:
        yield path.removeprefix(".")
        return
    for key, value in found.items():
        yield from _leaves(value, f"{path}.{key}")
