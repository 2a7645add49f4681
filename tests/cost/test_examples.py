"""The examples of Tariffs are valid, and what fetches series is shut in by a policy of its own."""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from webhook.model.costs.accelerator_profile import read_accelerator_profile
from webhook.model.costs.tariff import read_tariff

EXAMPLES = Path("examples/tariffs")
FETCHING = sorted(EXAMPLES.glob("fetch-*.yaml"))
OTHERS = sorted(set(EXAMPLES.glob("*.yaml")) - set(FETCHING))
READERS = {"Tariff": read_tariff, "AcceleratorProfile": read_accelerator_profile}


def objects(path):
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("path", OTHERS, ids=lambda path: path.stem)
def test_an_example_is_valid(path):
    for source in objects(path):
        READERS[source["kind"]](source)


@pytest.mark.parametrize("path", FETCHING, ids=lambda path: path.stem)
def test_what_fetches_is_reached_by_nobody_and_writes_one_config_map(path):
    by_kind = {source["kind"]: source for source in objects(path)}

    pod = by_kind["CronJob"]["spec"]["jobTemplate"]["spec"]["template"]
    policy = by_kind["NetworkPolicy"]["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert (policy["policyTypes"], "ingress" in policy) == (["Ingress", "Egress"], False)
    account = by_kind["ServiceAccount"]["metadata"]["name"]
    assert pod["spec"]["serviceAccountName"] == account
    assert [subject["name"] for subject in by_kind["RoleBinding"]["subjects"]] == [account]
    (name,) = by_kind["Role"]["rules"][0]["resourceNames"]
    (script,) = pod["spec"]["containers"][0]["args"]
    assert f"create configmap {name} " in script
    assert f"configMap: {name}, key: data.json" in path.read_text(encoding="utf-8")
    assert {source["metadata"]["namespace"] for source in by_kind.values()} == {"kueue-fallback"}


@pytest.mark.skipif(shutil.which("sh") is None, reason="no sh on this machine")
@pytest.mark.parametrize("path", FETCHING, ids=lambda path: path.stem)
def test_its_script_is_one(path):
    (cron_job,) = (source for source in objects(path) if source["kind"] == "CronJob")
    pod = cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]

    checked = subprocess.run(
        ["sh", "-n", "-c", pod["containers"][0]["args"][0]],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (checked.returncode, checked.stderr) == (0, "")
