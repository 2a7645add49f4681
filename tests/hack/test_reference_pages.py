"""docs/reference is what the commands and the kinds are."""

import pytest

from hack import api_page, commands_page
from webhook.__main__ import main


@pytest.mark.parametrize("page", [api_page, commands_page], ids=lambda page: page.PAGE.name)
def test_a_page_of_the_reference_is_current(page):
    assert page.PAGE.read_text() == page.text(), f"run python -m {page.__name__}"


def test_every_command_and_kind_has_its_section():
    commands, kinds = commands_page.text(), api_page.text()

    assert all(f"\n## {name}\n" in commands for name in main.list_commands(None))
    assert all(f"\n## {each.kind}\n" in kinds for each in api_page.crd.DEFINITIONS)
