"""Tariffs and AcceleratorProfiles on a real API server: it takes and refuses what `check` does."""

import json

import pytest
import yaml
from click.testing import CliRunner

from hack import crd
from tests.cost.bad_tariffs import REFUSED, REFUSED_PROFILES, TAKEN
from webhook.commands.check import command

pytestmark = pytest.mark.plane

API = "kueue-fallback.dev/v1alpha1"
WAIT = ("wait", "--for=condition=Established", "--timeout=300s")


@pytest.fixture
def served(plane):
    for definition in (crd.TARIFFS, crd.PROFILES):
        plane.client.apply(yaml.safe_load(crd.text(definition)))
        waited = plane.kubectl(*WAIT, f"crd/{definition.plural}.kueue-fallback.dev")
        assert waited.returncode == 0, waited.stderr
    return plane


CASES = [
    *(("Tariff", it, spec, path) for it, (spec, path) in REFUSED.items()),
    *(("Tariff", it, odd.spec, "") for it, odd in TAKEN.items()),
    *(("AcceleratorProfile", it, *rest) for it, rest in REFUSED_PROFILES.items()),
]


def test_the_api_server_refuses_them_at_the_places_where_check_does(served, tmp_path):
    files = {}
    for number, (kind, it, spec, want) in enumerate(CASES):
        path = tmp_path / f"{number}.json"
        metadata = {"name": f"bad-{number}"}
        source = {"apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec}
        path.write_text(json.dumps(source))
        files[str(path)] = it, want
    arguments = [argument for path in files for argument in ("-f", path)]
    asked = ["--server", "-o", "json", "--kubeconfig", str(served.kubeconfig)]

    checked = CliRunner().invoke(command, [*arguments, *asked])

    findings = json.loads(checked.stdout)["findings"]
    for path, (it, want) in files.items():
        wrong = [one for one in findings if one["file"] == path and one["kind"] == "error"]
        ours = {one["path"] for one in wrong if "server" not in one}
        api_servers = {one["path"] for one in wrong if "server" in one}
        # At the root the API server says that rules were not checked, too.
        assert (it, ours) == (it, {want} - {""})
        assert (it, api_servers - {""}) == (it, {want} - {""})
