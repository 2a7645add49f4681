"""helm's own way: install, upgrade, rollback and uninstall, with exactly the chart's rights."""

import contextlib
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from click.testing import CliRunner

from hack import paper
from hack.install import NAMESPACE
from hack.waiting import wait_for
from tests.e2e.decisions import DECISION, OPTION, POLICY_API, fill
from tests.e2e.plane import job_of
from tests.e2e.release import HELM_SECONDS, Release, former
from webhook.commands import probe

DEFINITION = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")
CRD = "fallbackpolicies.kueue-fallback.dev"
# What comes and goes by itself.
PASSING = {
    "bindings",
    "componentstatuses",
    "endpoints",
    "endpointslices.discovery.k8s.io",
    "events",
    "events.events.k8s.io",
    "leases.coordination.k8s.io",
    "pods",
    "jobs.batch",
    "workloads.kueue.x-k8s.io",
}


@pytest.fixture(scope="module")
def names(own_plane):
    found = paper.names_with("release", namespace="default")
    own_plane.client.apply_all(paper.queues(found))
    return found


@pytest.fixture(scope="module")
def before(own_plane, names):
    """Everything in the cluster before the install."""
    return everything(own_plane)


@pytest.fixture(scope="module")
def release(own_plane, before, tmp_path_factory):
    """An older version of the chart, installed, with two replicas behind its Service."""
    found = Release(
        own_plane, tmp_path_factory.mktemp("helm"), replicas=2, certificates="selfManaged"
    )
    package = found.package(version="0.0.9", change=former)
    with found.helming(
        "install", "kueue-fallback", package, "--create-namespace", *found.values
    ) as helm:
        found.run_pods()
        found.probed = found.run_hook("probe")
        found.installed = helm.communicate(timeout=HELM_SECONDS)[0], helm.returncode
    yield found
    found.down()


def everything(plane):
    """Name all objects of all kinds that do not come and go by themselves."""
    kinds = plane.kubectl("api-resources", "--verbs=list", "-o", "name").stdout.split()
    kept = ",".join(sorted(set(kinds) - PASSING))
    listed = plane.kubectl("get", kept, "-A", "--no-headers", "-o", COLUMNS)
    assert listed.returncode == 0, listed.stderr
    return {" ".join(line.split()) for line in listed.stdout.splitlines() if line.strip()}


COLUMNS = "custom-columns=KIND:.kind,NAMESPACE:.metadata.namespace,NAME:.metadata.name"


def definition_of(plane):
    return plane.client.get(*DEFINITION, CRD)


def decide(plane, names, name, **more):
    job = paper.light_job(name, names, faster=0.05)
    job["metadata"].setdefault("annotations", {}).update(more)
    return plane.client.create_for_answer(job)


@contextlib.contextmanager
def creating(plane, names):
    """Create light Jobs as dry runs, one after the other, until the end of the block."""
    answers, ended = [], threading.Event()

    def create():
        while not ended.is_set():
            answers.append(plane.client.create(paper.light_job("rolled", names), dry_run=True))

    with ThreadPoolExecutor(max_workers=1) as pool:
        creator = pool.submit(create)
        try:
            yield answers
        finally:
            ended.set()
        creator.result()


def test_an_install_ends_when_the_webhook_was_seen_to_be_called(release):
    output, code = release.installed

    assert (release.probed.returncode, release.probed.stderr) == (0, "")
    called = "The API server calls the webhook: the probe was answered by"
    assert release.probed.stdout.startswith(called)
    assert code == 0, output
    assert "STATUS: deployed" in output


def test_jobs_are_decided_with_the_charts_rights_alone(own_plane, release, names):
    own_plane.client.apply(paper.policy(names))
    fill(own_plane, names, gpu=14)

    job = decide(own_plane, names, "decided").json()

    assert job["metadata"]["labels"][OPTION] == "cpu"
    ready = wait_for(lambda: _ready(own_plane, names), "the controller judges the policy")
    assert ready["status"] == "True"


def _ready(plane, names):
    policy = plane.client.get(POLICY_API, "FallbackPolicy", names.policy)
    return next(iter(policy.get("status", {}).get("conditions") or ()), None)


def test_an_upgrade_brings_the_new_definition_and_decisions_go_on(own_plane, release, names):
    package = release.package()
    assert "shortNames" not in definition_of(own_plane)["spec"]["names"]

    with release.helming("upgrade", "kueue-fallback", package, *release.values) as helm:
        assert release.run_hook("probe").returncode == 0
        output = helm.communicate(timeout=HELM_SECONDS)[0]
        assert helm.returncode == 0, output

    assert definition_of(own_plane)["spec"]["names"]["shortNames"] == ["fbp"]
    assert own_plane.client.find(POLICY_API, "FallbackPolicy", names.policy)
    with creating(own_plane, names) as answers:
        # As the Deployment would: one after the other, with the new settings.
        for number in range(2):
            release.stop(number)
            release.start(number)
        wait_for(lambda: len(answers) > 20, "Jobs were created all the while")

    undecided = [job for job in answers if OPTION not in job["metadata"]["labels"]]
    print(f"{len(answers)} creates, {len(undecided)} undecided")
    assert undecided == []


def test_a_rollback_leaves_decisions_of_a_newer_version_as_they_are(own_plane, release, names):
    with release.helming("rollback", "kueue-fallback", "1") as helm:
        assert release.run_hook("probe").returncode == 0
        output = helm.communicate(timeout=HELM_SECONDS)[0]
        assert helm.returncode == 0, output
    newer = '{"version": 2, "id": "x", "policy": "p"}'

    answer = decide(own_plane, names, "newer", **{DECISION: newer})

    assert answer.json()["metadata"]["annotations"][DECISION] == newer
    assert OPTION not in answer.json()["metadata"]["labels"]
    assert any("newer version" in text for text in answer.warnings)
    assert own_plane.client.find(POLICY_API, "FallbackPolicy", names.policy)


def test_an_uninstall_whose_list_cannot_be_made_stops_and_takes_nothing_away(own_plane, release):
    with release.helming("uninstall", "kueue-fallback") as helm:
        pod = wait_for(lambda: release.pod_of("unfinished"), "the pod of the list is there")
        release.end_pod(pod, "Failed")
        output = helm.communicate(timeout=HELM_SECONDS)[0]

    assert helm.returncode == 1, output
    assert own_plane.client.find("apps/v1", "Deployment", "kueue-fallback", namespace=NAMESPACE)
    for replica in release.replicas:
        wait_for(replica.is_ready, f"{replica.name} is ready")


def test_an_uninstall_lists_unfinished_jobs_and_leaves_what_is_documented(
    own_plane, release, names, before
):
    with release.helming("uninstall", "kueue-fallback") as helm:
        listed = release.run_hook("unfinished")
        output = helm.communicate(timeout=HELM_SECONDS)[0]
        assert helm.returncode == 0, output

    assert listed.returncode == 0, listed.stderr
    assert re.search(r"^default +decided +cpu ", listed.stdout, re.MULTILINE)
    release.down()
    left = everything(own_plane) - before
    assert left == {
        f"CustomResourceDefinition <none> {CRD}",
        "CustomResourceDefinition <none> acceleratorprofiles.kueue-fallback.dev",
        "CustomResourceDefinition <none> tariffs.kueue-fallback.dev",
        "CustomResourceDefinition <none> teamfallbackpolicies.kueue-fallback.dev",
        # What the API server makes of the definition.
        "APIService <none> v1alpha1.kueue-fallback.dev",
        f"FallbackPolicy <none> {names.policy}",
        f"Namespace <none> {NAMESPACE}",
        f"ServiceAccount {NAMESPACE} default",
    }
    job = job_of(own_plane.client, "default", "decided")
    assert job["metadata"]["labels"][OPTION] == "cpu"
    assert not job["spec"]["suspend"]
    created = own_plane.client.create(paper.light_job("after", names))
    assert OPTION not in created["metadata"]["labels"]
    kubeconfig = str(own_plane.kubeconfig)
    probed = CliRunner().invoke(probe.command, ["--wait", "0", "--kubeconfig", kubeconfig])
    assert (probed.exit_code, probed.stdout) == (1, "")


def test_a_definition_that_helm_did_not_install_is_taken_over_when_asked(own_plane, release, names):
    """As after an uninstall under another name, or where the definition came with crds/."""
    definition = definition_of(own_plane)
    for key in ("annotations", "labels"):
        definition["metadata"].pop(key, None)
    own_plane.client.replace(definition)
    words = ("install", "second", release.package(version="0.2.0"), "--no-hooks", *release.values)

    refused = release.helm(*words, check=False)
    taken = release.helm(*words, "--take-ownership", check=False)

    assert "exists and cannot be imported" in refused.stderr
    assert taken.returncode == 0, taken.stderr
    assert own_plane.client.find(POLICY_API, "FallbackPolicy", names.policy)
