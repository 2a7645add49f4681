import pytest

from webhook.commands import manifest


def value(text):
    (document,) = manifest.read(text)
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
        ("a: 6Gi", "6Gi"),
        ("a: |\n  4", "4"),
    ],
)
def test_a_scalar_is_read_as_kubectl_reads_it(text, expected):
    found = value(text)["a"]

    assert (found, type(found)) == (expected, type(expected))


def test_the_line_of_each_path_is_known():
    (document,) = manifest.read("a:\n  b:\n  - c: 1\n    d.e/f: 2\n")

    lines = [document.line(path) for path in ("a", "a.b", "a.b[0].c", "a.b[0][d.e/f]", "a.b[7].x")]
    assert lines == [1, 2, 3, 4, 2]


def test_merge_keys_are_followed_and_lose_to_what_is_given():
    assert value("x: &x {a: 1, b: 2}\ny: {<<: *x, b: 3}")["y"] == {"a": 1, "b": 3}


def test_a_key_that_is_no_text_is_refused():
    with pytest.raises(manifest.ManifestError, match="a key must be a text"):
        value("? [a]\n: b")
