import itertools

import pytest

from webhook.commands import manifest


def value(text):
    (document,) = manifest.read_documents(text)
    return document.value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 4", 4),
        ("a: 4.0", 4.0),
        ("a: 1e3", 1000.0),
        ("a: 010", 8),
        ("a: 0x1F", 31),
        ("a: 1_000", 1000),
        ("a: yes", True),
        ("a: Off", False),
        ("a: n", False),
        ("a: ~", None),
        ("a:", None),
        ("a: '4'", "4"),
        ("a: 1:30", "1:30"),
        ("a: 2026-01-01", "2026-01-01"),
        ("a: 1e+06", 1e6),
        ("a: !!binary aGk=", "aGk="),
        ("a: 6Gi", "6Gi"),
        ("a: |\n  4", "4"),
    ],
)
def test_a_scalar_is_read_as_kubectl_reads_it(text, expected):
    found = value(text)["a"]

    assert (found, type(found)) == (expected, type(expected))


def test_the_line_of_each_path_is_known():
    (document,) = manifest.read_documents("a:\n  b:\n  - c: 1\n    d.e/f: 2\n")

    lines = [document.line(path) for path in ("a", "a.b", "a.b[0].c", "a.b[0][d.e/f]", "a.b[7].x")]
    assert lines == [1, 2, 3, 4, 2]


def test_merge_keys_are_followed_and_lose_to_what_is_given():
    assert value("x: &x {a: 1, b: 2}\ny: {<<: *x, b: 3}")["y"] == {"a": 1, "b": 3}


def test_a_key_that_is_no_text_is_refused():
    with pytest.raises(manifest.ManifestError, match="a key must be a text"):
        value("? [a]\n: b")


def test_what_may_be_meant_otherwise_is_noted():
    (document,) = manifest.read_documents("on: {a: off, b: true, c: 'no'}\nx: 1\nx: y\n")

    assert tuple(document.notes) == (
        ("on.a", "off is read as false: a text needs quotes"),
        ("x", 'key "x" already set in map: the last one counts'),
        ("x", "y is read as true: a text needs quotes"),
    )


@pytest.mark.parametrize("text", ["a: !!int b", "a: *b", "a: \a", "{<<: 4}"])
def test_what_is_not_yaml_is_refused(text):
    with pytest.raises(manifest.ManifestError, match="not YAML"):
        value(text)


@pytest.mark.parametrize("depth", [150, 50_000])
def test_nesting_is_bounded(depth):
    with pytest.raises(manifest.ManifestError, match="deeper than 100 levels"):
        value("[" * depth + "]" * depth)


def test_aliases_of_aliases_are_counted_as_what_they_stand_for():
    names = "abcdefghij"
    lines = ["a: &a [x]"]
    for above, name in itertools.pairwise(names):
        lines.append(f"{name}: &{name} [{', '.join([f'*{above}'] * 10)}]")

    with pytest.raises(manifest.ManifestError, match="more than 100000 values"):
        list(manifest.read_documents("\n".join(lines)))
