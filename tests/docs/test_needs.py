"""A stranger's walk: README's table leads each reader to a section that begins with a command."""

import re

import pytest

from tests.docs.pages import ALL_PAGES, ROOT, title_anchor

NEEDS = (
    "GPU Jobs on CPUs",
    "tiers",
    "MIG",
    "slices",
    "racks",
    "NVLink",
    "NPUs",
    "TPUs",
    "teams",
    "priorities",
    "preemption",
    "spot",
    "costs",
    "CO2",
    "other clusters",
    "serving",
    "when does my Job start",
)
"""What readers come for, in the words that they look for."""
MOST_WORDS = 45_000
"""What a reader can be asked to look through."""
COMMAND = re.compile(r"(\$ |kubectl |helm |make )")


def table():
    """Return the lines of README's table by need."""
    (_, text) = (ROOT / "README.md").read_text().split("\n## Find what you need\n")
    section = text.split("\n## ")[0]
    return [line for line in section.splitlines() if line.startswith("| ")][1:]


LINKS = [link for line in table() for link in re.findall(r"\]\(([^)]+)\)", line)]


def section(link):
    """Return what is below the heading that a link leads to, without the heading."""
    path, _, anchor = link.partition("#")
    titles = re.split(r"^#+ (.+)\n", (ROOT / path).read_text(), flags=re.MULTILINE)[1:]
    (found,) = (
        text
        for title, text in zip(titles[::2], titles[1::2], strict=True)
        if title_anchor(title) == anchor
    )
    return found


@pytest.mark.parametrize("need", NEEDS)
def test_a_reader_finds_the_word_in_the_table(need):
    assert need.lower() in "\n".join(table()).lower()


@pytest.mark.parametrize("link", LINKS)
def test_a_need_leads_to_a_section_that_begins_with_a_command(link):
    first, _, after = section(link).strip().partition("\n")

    assert first in {"```console", "```sh"}
    assert COMMAND.match(after)


def test_all_pages_together_are_short_enough_to_be_read():
    names = [str(page.relative_to(ROOT)) for page in ALL_PAGES]
    # Those that stand beside what they are about, as the chart's, are read with it.
    read = [name for name in names if name.startswith("docs/") or "/" not in name]
    words = {name: len((ROOT / name).read_text().split()) for name in read}

    longest = sorted(words.items(), key=lambda item: -item[1])[:8]
    assert sum(words.values()) <= MOST_WORDS, longest
