"""Every right that the chart asks for is used: taken away, something names what is missing.

The chart's roles are installed a second time under another name, where nothing runs, with a rule
for each verb on each resource; each test takes one of these away. What a process does with the
right is then done once, by its own code and with its ServiceAccount's token.
"""

import contextlib
import functools
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from hack import paper
from hack.install import kubeconfig_of
from hack.waiting import wait_for
from tests.chart import helm
from tests.controller.journals import ENDED
from tests.e2e import rights
from webhook.api import lease
from webhook.api.resources import SAVINGS, SIGNING_KEYS
from webhook.hindsight import journal
from webhook.learn.run_records import name_of, shard_of
from webhook.model.holds import GATE, OUR_GATE
from webhook.state.cluster_watches import PREFIX

RELEASE = "kueue-fallback-rights"
PARTS = {
    "webhook": (
        RELEASE,
        f"{RELEASE}-kueue-config",
        f"{RELEASE}-off-switch",
        f"{RELEASE}-run-times",
        f"{RELEASE}-signing-keys",
        f"{RELEASE}-ca",
        f"{RELEASE}-console",
        f"{RELEASE}-workers",
    ),
    "controller": (
        f"{RELEASE}-controller",
        f"{RELEASE}-kueue-config",
        f"{RELEASE}-off-switch",
        f"{RELEASE}-run-times",
        f"{RELEASE}-signing-keys",
    ),
    "probe": (f"{RELEASE}-probe",),
    "unfinished": (f"{RELEASE}-unfinished",),
}
ACCOUNTS = {part: f"{RELEASE}-{part}" for part in PARTS} | {"webhook": RELEASE}
INSTALLED = ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ServiceAccount", "Secret")
BY_RESOURCE = (
    *("configmaps", "events", "jobs", "leases", "workloads"),
    *("tokenreviews", "subjectaccessreviews"),
)
WORKERS_SECRET = f"{PREFIX}{rights.WORKER}"
NAMES = paper.names_with("rights", namespace="rights")
JOURNAL = journal.name_of(journal.slot_of(ENDED))
POLICIES = ("kueue-fallback.dev/v1alpha1", "FallbackPolicy")
STATUSES = {
    "fallbackpolicies/status": (*POLICIES, NAMES.policy),
    "tariffs/status": (POLICIES[0], "Tariff", "rights"),
    "acceleratorprofiles/status": (POLICIES[0], "AcceleratorProfile", "rights"),
}
CONFIGURATION = "MutatingWebhookConfiguration"


@pytest.fixture(scope="module")
def objects():
    """What the chart renders, with a rule for each right."""
    workers = json.dumps([rights.WORKER])
    values = {"clusters.watchWorkers": workers, "console.expose": "true"}
    result = helm.template(values, release=RELEASE)
    assert result.returncode == 0, result.stderr
    found = helm.objects_of(result)
    for role in found:
        if "rules" in role:
            role["rules"] = [right for rule in role["rules"] for right in _taken_apart(rule)]
        if role["kind"] == CONFIGURATION:
            for each in role["webhooks"]:
                # Nobody answers here.
                each["objectSelector"] = {"matchLabels": {"never": "sent"}}
    return found


def _taken_apart(rule):
    names = rule.get("resourceNames", ())
    for resource in rule["resources"]:
        for verb in rule["verbs"]:
            right = {**rule, "resources": [resource], "verbs": [verb]}
            if verb in ("list", "watch") and names:
                # Each is followed by itself.
                yield from ({**right, "resourceNames": [name]} for name in names)
            else:
                yield right


def _is_of_journal(right):
    return JOURNAL in right.get("resourceNames", ())


def _is_of_savings(right):
    return SAVINGS in right.get("resourceNames", ())


def _is_of_keys(part, right):
    is_named = SIGNING_KEYS in right.get("resourceNames", ())
    return is_named or (part == "controller" and right["resources"] == ["secrets"])


def _rights_of(part, objects):
    """List each role of a part with each of its rights."""
    return [
        (role, right)
        for role in objects
        if "rules" in role and role["metadata"]["name"] in PARTS[part]
        for right in role["rules"]
    ]


@pytest.fixture(scope="module")
def installed(plane, objects):
    """The chart's rights and what they are about, without any process."""
    client = plane.client
    chosen = [each for each in objects if each["kind"] in (*INSTALLED, CONFIGURATION)]
    definitions = [each for each in objects if each["kind"] == "CustomResourceDefinition"]
    plane.install([*definitions, *chosen], namespace=helm.NAMESPACE)
    priced = rights.TARIFF, rights.PROFILE
    for each in (paper.policy(NAMES), *priced):
        client.apply(each)
    yield
    for each in priced:
        client.delete(each["apiVersion"], each["kind"], each["metadata"]["name"])
    for each in chosen:
        metadata = each["metadata"]
        place = metadata.get("namespace", "")
        client.delete(each["apiVersion"], each["kind"], metadata["name"], namespace=place)
    client.delete(*POLICIES, NAMES.policy)


@pytest.fixture(scope="module")
def kubeconfigs(plane, installed):
    return {
        part: str(kubeconfig_of(plane, account, namespace=helm.NAMESPACE))
        for part, account in ACCOUNTS.items()
    }


@pytest.fixture
def use(plane, kubeconfigs):
    """Do what the part does with the right; return its complaint."""

    def used(part, right):
        kubeconfig = kubeconfigs[part]
        return _use_of(part, right)(right, kubeconfig, helm.NAMESPACE)

    return used


def _name_of_use(part, right):
    if _use_of(part, right) is rights.following:
        return right.get("resourceNames", right["resources"])[0]
    if _is_of_savings(right):
        return "savings"
    if right["resources"][0] in (*BY_RESOURCE, *STATUSES):
        return right["resources"][0]
    if _use_of(part, right) is rights.keeping_keys:
        return "keys"
    if _use_of(part, right) is rights.reading_kubeconfigs:
        return "kubeconfigs"
    # The certificates are kept by several rights at once.
    return part


def _use_of(part, right):
    (resource,), verbs = right["resources"], set(right["verbs"])
    if part in ("probe", "unfinished"):
        return rights.probing if part == "probe" else rights.listing_unfinished
    writes_keys = _is_of_keys(part, right) and not verbs <= {"list", "watch"}
    publishes = _is_of_savings(right) and part == "controller"
    patches = {"jobs": rights.moving, "workloads": rights.repairing}
    uses = {
        "fallbackpolicies/status": rights.writing_status,
        "tariffs/status": rights.writing_costs,
        "acceleratorprofiles/status": rights.writing_costs,
        "events": functools.partial(rights.telling, policy=paper.policy(NAMES)),
        "leases": rights.leading,
        "tokenreviews": rights.asking_who,
        "subjectaccessreviews": rights.asking_what,
        **(patches if right["verbs"] == ["patch"] else {}),
        **({"secrets": rights.keeping_keys} if writes_keys else {}),
        **({"configmaps": rights.publishing} if publishes else {}),
    }
    if resource == "leases" and part == "webhook":
        return rights.following
    if resource in uses:
        return uses[resource]
    if _is_of_journal(right):
        return rights.keeping_journal
    if resource == "configmaps" and verbs <= {"get", "create", "patch"}:
        return rights.reading_records if part == "webhook" else rights.keeping_records
    if right.get("resourceNames") == [WORKERS_SECRET]:
        return rights.reading_kubeconfigs
    if {"get", "create", "update", "patch"} & verbs:
        return functools.partial(rights.keeping_certificates, release=RELEASE)
    return rights.following


@contextlib.contextmanager
def without(plane, role, right):
    """Take one right out of a role; give it back in the end."""
    _write(plane, role, [each for each in role["rules"] if each != right])
    try:
        yield
    finally:
        _write(plane, role, role["rules"])


def _write(plane, role, rules):
    metadata = role["metadata"]
    path = plane.client.path(
        role["apiVersion"],
        role["kind"],
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
    )
    body = {"rules": rules}
    plane.client.send("PATCH", path, body, content_type="application/merge-patch+json")


def prepare(plane, objects, part, right):
    """Bring about the situation in which the right is needed."""
    if _is_of_keys(part, right):
        plane.client.delete("v1", "Secret", SIGNING_KEYS, namespace=helm.NAMESPACE)
        if right["verbs"] == ["patch"]:
            metadata = {"name": SIGNING_KEYS, "namespace": helm.NAMESPACE}
            plane.client.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
    elif right["resources"] == ["secrets"] and right.get("resourceNames") != [WORKERS_SECRET]:
        plane.client.delete("v1", "Secret", f"{RELEASE}-ca", namespace=helm.NAMESPACE)
        if right["verbs"] != ["create"]:
            secret = next(
                each
                for each in objects
                if (each["kind"], each["metadata"]["name"]) == ("Secret", f"{RELEASE}-ca")
            )
            plane.client.create(secret)
    if right["resources"] == ["configmaps"]:
        name = _config_map_of(right)
        plane.client.delete("v1", "ConfigMap", name, namespace=helm.NAMESPACE)
        if right["verbs"] == ["patch"]:
            metadata = {"name": name, "namespace": helm.NAMESPACE}
            plane.client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    if part == "unfinished":
        # Where no webhook of another test takes off a gate that no decision has put there.
        held = paper.light_job("held", paper.Names(namespace="kube-system"))
        held["metadata"]["annotations"] = {GATE: OUR_GATE}
        plane.client.delete("batch/v1", "Job", "held", namespace="kube-system")
        plane.client.create(held)
    if right["resources"] == ["leases"] and right["verbs"] == ["create"]:
        plane.client.delete("coordination.k8s.io/v1", "Lease", lease.NAME, namespace=helm.NAMESPACE)
    if right["resources"][0] in STATUSES:
        api_version, kind, name = STATUSES[right["resources"][0]]
        path = plane.client.path(api_version, kind, name=name)
        plane.client.send(
            "PATCH", f"{path}/status", {"status": None}, content_type="application/merge-patch+json"
        )


def _config_map_of(right):
    if _is_of_savings(right):
        return SAVINGS
    return JOURNAL if _is_of_journal(right) else name_of(shard_of(rights.CLASS))


@pytest.mark.parametrize("part", PARTS)
def test_without_one_right_it_is_named(plane, objects, use, subtests, part):
    for role, right in _rights_of(part, objects):
        named = {"role": role["metadata"]["name"], **right}
        with subtests.test(**named), without(plane, role, right):
            complaint = complaint_without(plane, objects, use, part, role, right)

            (verb,), (resource,) = right["verbs"], right["resources"]
            assert f'cannot {verb} resource "{resource}"' in complaint


def complaint_without(plane, objects, use, part, role, right):
    """Return what a part says when it needs a right that it no longer has."""
    wait_for(
        lambda: not rights.is_allowed(plane, ACCOUNTS[part], role, right), "the right is taken away"
    )

    def complain():
        # The controller of another test may be first, and then there is nothing left to do.
        prepare(plane, objects, part, right)
        return use(part, right)

    return wait_for(complain, "the right is missed")


@pytest.mark.parametrize("part", PARTS)
def test_with_all_rights_nothing_is_missing(plane, objects, use, part):
    # One resource, one use: a watch takes seconds.
    uses = {_name_of_use(part, right): (role, right) for role, right in _rights_of(part, objects)}

    def complain(used):
        role, right = used
        wait_for(
            lambda: rights.is_allowed(plane, ACCOUNTS[part], role, right), "the right is there"
        )
        prepare(plane, objects, part, right)
        return use(part, right)

    with ThreadPoolExecutor(max_workers=len(uses)) as pool:
        complaints = dict(zip(uses, pool.map(complain, uses.values()), strict=True))

    assert {name: text for name, text in complaints.items() if text} == {}
