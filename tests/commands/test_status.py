"""`kubectl fallback status`: what is seen, what is forbidden, and what needs attention."""

import json
import re
import time

import pytest
import yaml

from tests.commands import release
from tests.commands.release import (
    SNAPSHOT,
    WELL,
    configuration,
    deployed,
    lease,
    lines_of,
    metrics,
    pod,
    ready,
    unanswered,
    with_status,
    without,
)
from tests.model.team_policies import team_policy
from tests.state.kueue import deployment
from webhook.api.resources import KUEUE_DEPLOYMENT
from webhook.cost.slice_geometry import geometry
from webhook.hindsight import fragmentation_record, savings_record
from webhook.hindsight.freed_slices import fragmentation
from webhook.hindsight.savings_record import Gained, SavingsRecord
from webhook.hindsight.slice_advice import DeviceNode
from webhook.model.costs.device_table import DEVICES
from webhook.model.costs.prices import CongestionPrices, ScarceCell
from webhook.state.published_congestion import config_map_of
from webhook.state.readers import OUR_WEBHOOK


@pytest.fixture
def status(tmp_path):
    def run(*objects, policies=None, **given):
        snapshot = with_status(ready()) if policies is None else policies
        return release.status(tmp_path, *snapshot, *objects, **given)

    return run


def test_all_is_well(status):
    result = status(*WELL)

    lines = lines_of(result)
    assert (result.exit_code, lines[0]) == (0, "Decisions on")
    assert re.fullmatch(r"Webhook answers in \d+ ms \(web-1 0.1.0\)", lines[1])
    assert lines[2] == "Kueue (v1beta2) on Kubernetes v1.36.0"
    assert lines[3].startswith("Leader controller-1, renewed ")
    assert lines[4].startswith("Certificates the authority for 35")
    assert any(re.fullmatch("server-1 ready 0s 20h(1m)? -", line) for line in lines)
    assert "light-gpu Enforce Threshold ready gpu, cpu -" in lines
    assert [line for line in lines if line.startswith("cpu-cq")] == [
        "cpu-cq active 0 0 cpu cpu 0 24 now"
    ]
    assert "Needs attention:" not in lines


def test_programs_get_numbers(status):
    found = json.loads(status(*WELL, words=["-o", "json"]).output)

    assert found["attention"] == []
    assert found["switch"] == {"off": False, "namespaces": []}
    assert (found["leader"]["holder"], found["leader"]["leads"]) == ("controller-1", True)
    assert (found["webhook"]["answers"], found["webhook"]["namespace"]) == (True, "research")
    assert found["policies"] == [
        {
            "name": "light-gpu",
            "mode": "Enforce",
            "strategy": "Threshold",
            "options": ["gpu", "cpu"],
            "ready": True,
            "message": "all options can be taken",
            "kueueTested": None,
            "kueueMessage": "",
            "reviewed": None,
            "reviewedMessage": "",
            "created": found["policies"][0]["created"],
        }
    ]
    queues = {each["name"]: each for each in found["clusterQueues"]}
    assert (queues["gpu-cq"]["pending"], queues["gpu-cq"]["reserving"]) == (11, 4)
    gpu = next(each for each in queues["gpu-cq"]["quotas"] if each["resource"] == "nvidia.com/gpu")
    assert (gpu["used"], gpu["quota"]) == ("4", "4")
    assert queues["cpu-cq"]["quotas"][0]["nextFreeIn"] == 0.0
    (server,) = found["replicas"]
    assert (server["state"], server["stateAgeSeconds"]) == ("ready", 0.4)
    assert yaml.safe_load(status(*WELL, words=["-o", "yaml"]).output).keys() == found.keys()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({}, "Decisions off everywhere; on again: kubectl fallback on"),
        ({"namespaces": "a,b"}, "Decisions off in a, b; on again: kubectl fallback on"),
    ],
)
def test_the_off_switch_is_shown_and_is_no_trouble(status, data, said):
    metadata = {"name": "kueue-fallback-off", "namespace": "kf"}

    result = status(*WELL, {"kind": "ConfigMap", "metadata": metadata, "data": data})

    assert (result.exit_code, lines_of(result)[0]) == (0, said)


def prices_of(seconds_ago, cluster=""):
    """Return the ConfigMap with one price, of so many seconds ago."""
    scarce = ScarceCell("queue gpu-cq", "t4", "nvidia.com/gpu", cluster)
    prices = CongestionPrices(
        at=time.time() - seconds_ago, prices={scarce: 1.25}, waits={scarce: 400.0}
    )
    found = config_map_of(prices)
    return {**found, "metadata": {**found["metadata"], "namespace": "kf"}}


def test_what_is_scarce_is_shown_with_its_price_and_its_wait(status):
    lines = lines_of(status(*WELL, prices_of(30)))

    shown = [" ".join(line.split()) for line in lines]
    assert "queue gpu-cq t4 nvidia.com/gpu 1.25 6m40s" in shown


def slices_of(seconds_ago):
    """What the leader found so many seconds ago, and published for half a minute."""
    a100 = DEVICES["NVIDIA-A100-SXM4-40GB"]
    one, three = "nvidia.com/mig-1g.5gb", "nvidia.com/mig-3g.20gb"
    nodes = [
        DeviceNode(
            name="n1",
            device=a100,
            cuts=(geometry({three: 2}),),
            used={"team/a": {three: 1}, "team/b": {three: 1}},
        ),
        DeviceNode(name="n2", device=a100, cuts=(geometry({one: 7}),), used={"team/c": {one: 3}}),
    ]
    at = time.time() - seconds_ago
    found = fragmentation_record.config_map_of(fragmentation(nodes, {three: 2}), at, at + 30)
    return {**found, "metadata": {**found["metadata"], "namespace": "kf"}}


def test_slices_that_wait_are_shown_with_whose_end_frees_them(status):
    lines = lines_of(status(*WELL, slices_of(10), words=["-o", "wide"]))

    row = "nvidia.com/mig-3g.20gb 2 0 1 0.571 devices on Node n1 when team/a has ended"
    assert row in lines
    assert "n2 7 x 1g.5gb 2 x 3g.20gb team/c" in lines


def test_slices_of_which_nobody_has_looked_again_are_not_shown(status):
    assert "3g.20gb" not in status(*WELL, slices_of(60)).output


def test_what_is_scarce_in_a_worker_cluster_is_shown_with_the_clusters_name(status):
    lines = lines_of(status(*WELL, prices_of(30, "far")))

    shown = [" ".join(line.split()) for line in lines]
    assert "queue gpu-cq of cluster far t4 nvidia.com/gpu 1.25 6m40s" in shown


def unreviewed(message):
    """A status that says which Jobs no server was asked about."""
    said = {"type": "Reviewed", "status": "False", "message": message, "reason": "NoReview"}
    return {"conditions": [*ready()["conditions"], said]}


@pytest.mark.parametrize(
    ("objects", "given", "trouble"),
    [
        (
            WELL,
            {"policies": with_status(ready("False", "option gpu: no queue"))},
            "policy light-gpu is not ready: option gpu: no queue",
        ),
        (
            without(lease),
            {},
            "no controller leads: there is no Lease kueue-fallback-controller in namespace kf",
        ),
        (
            without(lease, lease(age=60.0)),
            {},
            "no controller leads: controller-1 has not renewed its Lease",
        ),
        (
            without(lease, lambda: lease(holder="")),
            {},
            "no controller leads: nobody holds the Lease",
        ),
        (
            without(configuration, configuration(days=5)),
            {},
            "every certificate in the caBundle is expired",
        ),
        (
            without(configuration, configuration(bundle="")),
            {},
            "a webhook has no caBundle, so the API server trusts no server",
        ),
        (
            WELL,
            {"policies": with_status(ready(tested=("False", "Kueue 0.20.0 is untested: …")))},
            "Kueue is untested: Kueue 0.20.0 is untested: …",
        ),
        (
            WELL,
            {"policies": with_status(ready(tested=("Unknown", "its image has no tag")))},
            "Kueue is untested: its image has no tag",
        ),
        (
            WELL,
            {"told": metrics(untested=["VersionUntested"])},
            "Kueue is untested: Kueue's version is not among those that are tested",
        ),
        (WELL, {"told": metrics(age="+Inf")}, "server-1 is stale"),
        (WELL, {"told": metrics(age="15.1")}, "server-1 is stale"),
        (
            WELL,
            {"told": metrics(hours=-1)},
            "the certificate of server-1 is expired",
        ),
        (without(pod, pod(is_ready=False)), {}, "server-1 is not ready"),
        (
            WELL,
            {"created": unanswered},
            (
                "the API server gets no answer about a new Job in namespace research, so none is "
                "decided: kubectl fallback probe says what to check"
            ),
        ),
        (
            (*WELL, deployed("kueue-fallback", ready=0)),
            {},
            "Deployment kueue-fallback: none of 2 pods is ready",
        ),
        (
            (*WELL, deployed(KUEUE_DEPLOYMENT, ready=0, wanted=1, namespace="kueue-system")),
            {},
            "Kueue does not run: none of 1 pods of kueue-controller-manager is ready",
        ),
        (
            WELL,
            {"policies": with_status(unreviewed("3 Jobs were created without a review"))},
            "policy light-gpu: 3 Jobs were created without a review",
        ),
        (
            WELL,
            {"policies": with_status(ready(), hours_old=25)},
            (
                "policy light-gpu has matched no Job for a day: "
                "kubectl fallback explain -f JOB.yaml says why"
            ),
        ),
    ],
)
def test_what_needs_attention_ends_with_1(status, objects, given, trouble):
    result = status(*objects, words=["--release-namespace", "kf"], **given)

    assert result.exit_code == 1
    _, _, attention = " ".join(lines_of(result)).partition("Needs attention: ")
    assert attention == trouble


def test_a_policy_that_matches_is_well_however_old_it_is(status):
    old = with_status(ready(), hours_old=100)

    assert status(*WELL, policies=old, told=metrics(matched=["light-gpu"])).exit_code == 0


@pytest.mark.parametrize(("hours_ago", "code"), [(3, 0), (30, 1)])
def test_jobs_that_have_ended_were_matched_too(status, hours_ago, code):
    since = time.time() - 3600 * hours_ago
    hour = Gained(since=since, policy="light-gpu", namespace="research", jobs=1)
    found = savings_record.config_map(
        savings_record.packed(SavingsRecord(as_of=time.time(), hours=(hour,)))
    )
    published = {**found, "metadata": {**found["metadata"], "namespace": "kf"}}

    result = status(*WELL, published, policies=with_status(ready(), hours_old=100))

    assert result.exit_code == code


def test_handshakes_that_fail_are_told_where_the_webhook_does_not_answer(status):
    told = metrics(handshakes=21)

    assert "21 TLS handshakes" not in status(*WELL, told=told).output
    assert (
        "server-1 counts 21 TLS handshakes" in status(*WELL, told=told, created=unanswered).output
    )


def test_who_may_not_create_jobs_is_told_nothing_of_the_webhook(status):
    result = status(*WELL, forbidden=["*/research/jobs"])

    assert (result.exit_code, lines_of(result)[0]) == (0, "Decisions on")
    assert "You may not see: Webhook (-o json has the reasons)." in lines_of(result)


def test_jobs_of_a_namespace_that_is_not_sent_prove_nothing(status):
    ours = configuration()
    ours["webhooks"][0] |= {
        "name": OUR_WEBHOOK,
        "namespaceSelector": {"matchLabels": {"reviewed": "yes"}},
    }
    others = {"kind": "Namespace", "metadata": {"name": "research", "labels": {}}}

    result = status(*without(configuration, ours), others, created=unanswered)

    assert result.exit_code == 0
    assert "Jobs in namespace research are not sent to it" in " ".join(lines_of(result))


def test_a_kueue_with_some_pods_is_no_trouble_but_shown(status):
    some = deployed(KUEUE_DEPLOYMENT, ready=1, wanted=2, namespace="kueue-system")

    result = status(*WELL, some)

    assert result.exit_code == 0
    assert "Kueue (v1beta2) on Kubernetes v1.36.0, 1 of 2 ready" in lines_of(result)


def test_a_policy_that_has_changed_since_is_not_judged(status):
    found = json.loads(
        status(*WELL, policies=with_status(ready(), generation=2), words=["-o", "json"]).output
    )

    assert (found["policies"][0]["ready"], found["attention"]) == (None, [])


def test_a_cluster_without_the_webhook_says_so(status):
    result = status(words=["--release-namespace", "kf"])

    assert result.exit_code == 1
    assert lines_of(result)[-2:] == [
        "no controller leads: there is no Lease kueue-fallback-controller in namespace kf",
        "the API server calls no webhook: it is not configured",
    ]


def test_what_is_forbidden_is_said_in_one_line(status):
    hidden = ["*/clusterqueues", "*/mutatingwebhook*", "*/fallbackpolicies", "*/kf/*", "*/kueue-s*"]

    result = status(*WELL, forbidden=hidden, words=["--release-namespace", "kf"])

    lines = lines_of(result)
    assert (result.exit_code, result.stderr) == (0, "")
    names = "Decisions, Leader, Certificates, Deployments, Servers, Policies, Queues"
    assert lines[0].startswith("Webhook answers in ")
    assert lines[1:5] == [
        "Kueue (v1beta2) on Kubernetes v1.36.0",
        f"You may not see: {names} (-o json has the reasons).",
        "",
        "NAMESPACE LOCALQUEUE CLUSTERQUEUE PENDING RESERVING",
    ]
    assert {line.split()[1] for line in lines[5:]} == {
        item["metadata"]["name"] for item in SNAPSHOT if item["kind"] == "LocalQueue"
    }


@pytest.mark.parametrize(("words", "namespaces"), [((), set()), (("-A",), {"research", "other"})])
def test_local_queues_are_shown_to_who_asks_for_them(status, words, namespaces):
    (queue,) = [item for item in SNAPSHOT if item["kind"] == "LocalQueue"][:1]
    other = {**queue, "metadata": {**queue["metadata"], "namespace": "other"}}

    found = status(*WELL, other, words=[*words, "-o", "json"])

    shown = json.loads(found.stdout).get("localQueues", [])
    assert {each["namespace"] for each in shown} == namespaces


def many_queues(number):
    """Return ClusterQueues in cohorts of ten, the first of each with GPUs; most are idle."""
    for index in range(number):
        resource = "cpu" if index % 10 else "nvidia.com/gpu"
        quota = {"name": resource, "nominalQuota": "4"}
        group = {"coveredResources": [resource], "flavors": [{"name": "t4", "resources": [quota]}]}
        spec = {"cohortName": f"team-{index // 10:02}", "resourceGroups": [group]}
        metadata = {"name": f"a-queue-with-a-long-name-{index:03}"}
        yield {"kind": "ClusterQueue", "metadata": metadata, "spec": spec}


@pytest.mark.parametrize("columns", ["60", "100"])
def test_two_hundred_queues_fit_a_screen_with_those_of_policies_first(status, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)

    lines = status(*WELL, *many_queues(200)).stdout.splitlines()

    header = next(index for index, line in enumerate(lines) if line.startswith("CLUSTERQUEUE"))
    shown = [line.split()[0] for line in lines[header + 1 : -1] if not line.startswith(" ")]
    assert (len(lines) <= 40, shown) == (True, ["gpu-cq", "cpu-cq"])
    assert lines[-1] == "… and 200 more ClusterQueues, 0 with pending Workloads: --all"


def test_without_policies_the_busiest_queues_are_shown(status):
    unruled = [item for item in SNAPSHOT if item["kind"] != "FallbackPolicy"]

    lines = status(*WELL, *many_queues(200), policies=unruled).stdout.splitlines()

    header = next(index for index, line in enumerate(lines) if line.startswith("CLUSTERQUEUE"))
    shown = [line.split()[0] for line in lines[header + 1 :] if not line.startswith(" ")]
    assert (len(lines) <= 40, shown[0]) == (True, "gpu-cq")
    assert shown.index("a-queue-with-a-long-name-000") < shown.index("a-queue-with-a-long-name-001")


def test_what_policies_say_of_kueue_stands_for_what_servers_say(status):
    policies = with_status(ready(tested=("True", "it is tested")))

    result = status(*WELL, policies=policies, told=metrics(untested=["VersionUnknown"]))

    assert (result.exit_code, "untested" in result.output) == (0, False)


def test_kueues_line_names_its_version_and_that_it_is_untested(status):
    policies = with_status(ready(tested=("False", "Kueue 0.20.0 is untested")))

    result = status(*WELL, deployment(image="kueue:v0.20.0"), policies=policies)

    assert lines_of(result)[2] == "Kueue v0.20.0 (v1beta2) on Kubernetes v1.36.0, untested"


def test_kinds_are_named_where_some_policy_is_for_others_than_jobs(status):
    def of_kinds(item):
        if item["kind"] != "FallbackPolicy":
            return item
        match = {**item["spec"]["match"], "kinds": ["Job", "RayJob"]}
        return {**item, "spec": {**item["spec"], "match": match}}

    policies = [of_kinds(item) for item in with_status(ready())]
    lines = lines_of(status(*WELL, policies=policies))
    found = json.loads(status(*WELL, policies=policies, words=["-o", "json"]).output)

    assert "POLICY KINDS MODE STRATEGY READY OPTIONS MESSAGE" in lines
    assert "light-gpu Job, RayJob Enforce Threshold ready gpu, cpu -" in lines
    assert [policy["kinds"] for policy in found["policies"]] == [["Job", "RayJob"]]


def test_a_teams_policy_is_shown_with_its_namespace_and_is_no_trouble(status):
    own = team_policy(name="light", namespace="research")
    own["metadata"]["generation"] = 1
    own["status"] = ready("False", "spec.options[0].queue: no LocalQueue gpu-lq")

    result = status(*WELL, own)

    lines = lines_of(result)
    assert result.exit_code == 0
    assert any(line.startswith("research/light Observe FinishTime not ready") for line in lines)
    assert "Needs attention:" not in lines
