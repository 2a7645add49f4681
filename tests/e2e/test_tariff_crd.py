"""The definition of Tariffs on a real API server: it takes and refuses what `check` does."""

import json

import pytest
import yaml
from click.testing import CliRunner

from hack import crd
from tests.cost.bad_tariffs import REFUSED, TAKEN
from tests.cost.tariffs import tariff_object
from webhook.commands.check import command

pytestmark = pytest.mark.plane

TYPE = {"apiVersion": "kueue-fallback.dev/v1alpha1", "kind": "Tariff"}
DEFINITION = "crd/tariffs.kueue-fallback.dev"


@pytest.fixture
def served(plane):
    plane.client.apply(yaml.safe_load(crd.text(crd.TARIFFS)))
    waited = plane.kubectl("wait", "--for=condition=Established", "--timeout=30s", DEFINITION)
    assert waited.returncode == 0, waited.stderr
    return plane


def test_the_api_server_refuses_tariffs_at_the_places_where_check_does(served, tmp_path):
    cases = {**REFUSED, **{it: (odd.spec, "") for it, odd in TAKEN.items()}}
    files = {}
    for number, (it, (spec, _)) in enumerate(cases.items()):
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps({**TYPE, **tariff_object(f"bad-{number}", **spec)}))
        files[str(path)] = it
    arguments = [argument for path in files for argument in ("-f", path)]
    asked = ["--server", "-o", "json", "--kubeconfig", str(served.kubeconfig)]

    checked = CliRunner().invoke(command, [*arguments, *asked])

    findings = json.loads(checked.stdout)["findings"]
    for path, it in files.items():
        wrong = [one for one in findings if one["file"] == path and one["kind"] == "error"]
        ours = {one["path"] for one in wrong if "server" not in one}
        api_servers = {one["path"] for one in wrong if "server" in one}
        _, want = cases[it]
        # At the root the API server says that rules were not checked, too.
        assert (it, ours) == (it, {want} - {""})
        assert (it, api_servers - {""}) == (it, {want} - {""})
