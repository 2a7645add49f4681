"""Settings that do not go together."""

import pytest
from pydantic import ValidationError

from webhook.settings import Settings


def test_names_of_clients_without_an_authority_are_refused():
    with pytest.raises(ValidationError, match="client_names: need a client_ca that vouches"):
        Settings.model_validate({"client_names": ["kube-apiserver"]})


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"leaf_lifetime": 359}, "leaf_lifetime: must be at least 6 times ca_settle"),
        ({"ca_lifetime": 3 * 86_400 - 1}, "ca_lifetime: must be at least 3 times leaf_lifetime"),
    ],
)
def test_lifetimes_that_leave_no_time_to_renew_are_refused(given, text):
    with pytest.raises(ValidationError, match=text):
        Settings.model_validate(given)
