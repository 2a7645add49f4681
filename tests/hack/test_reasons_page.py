"""docs/reasons.md lists every reason that people can meet, and says what to do."""

from importlib import import_module
from pkgutil import walk_packages

import pytest

import webhook
from hack import reasons_page
from webhook.model.reasons import Explained

REASONS = [reason for group in reasons_page.GROUPS for reason in group.reasons]


def test_the_page_is_what_the_reasons_are():
    assert reasons_page.PAGE.read_text() == reasons_page.text().rstrip() + "\n"


def test_every_closed_set_is_on_the_page():
    for module in walk_packages(webhook.__path__, "webhook."):
        if module.name.startswith("webhook.model."):
            import_module(module.name)

    assert set(Explained.__subclasses__()) == {group.reasons for group in reasons_page.GROUPS}


@pytest.mark.parametrize("reason", REASONS, ids=str)
def test_a_reason_says_what_it_means_and_what_to_do(reason):
    assert reason.meaning
    assert not reason.meaning.endswith(".")
    assert reason.advice.endswith(".")
    assert "|" not in reason.meaning + reason.advice


def test_a_reason_is_read_back_by_its_name():
    assert all(type(reason)(str(reason)) is reason for reason in REASONS)
