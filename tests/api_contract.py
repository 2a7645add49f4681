"""What our processes suppose of an API server, each as a function of a plane and a namespace.

The embedded one keeps it in `make test`, and the real one in tests/e2e: so the embedded one is none
that only our own tests believe in.
"""

import http

import pytest

from hack.api import ApiError
from hack.waiting import wait_for
from webhook.api.client import Client
from webhook.api.kubernetes_api import Gone, Refused

MAPS = ("v1", "ConfigMap")
JOBS = ("batch/v1", "Job")
GROUP = "example.kueue-fallback.dev"


def config_map(namespace, name="one", **more):
    metadata = {"name": name, "namespace": namespace, **more}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "1"}}


def job(namespace, **spec):
    container = {"name": "main", "image": "any", "resources": {"limits": {"cpu": "1"}}}
    pod = {"restartPolicy": "Never", "containers": [container]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "one", "namespace": namespace},
        "spec": {"suspend": True, "template": {"spec": pod}, **spec},
    }


def refused(call):
    """Return code, reason and message of the Status with which a call is refused."""
    with pytest.raises(ApiError) as found:
        call()
    return found.value.status, str(found.value.message)


def client_of(plane):
    return Client(str(plane.kubeconfig))


def path_of(namespace):
    return f"/api/v1/namespaces/{namespace}/configmaps"


def what_is_created_gets_an_identity(plane, namespace):
    made = plane.client.create(config_map(namespace))["metadata"]
    drawn = plane.client.create(
        {**config_map(namespace), "metadata": {"generateName": "drawn-", "namespace": namespace}}
    )["metadata"]

    assert made.keys() >= {"uid", "creationTimestamp", "resourceVersion"}
    assert int(made["resourceVersion"]) < int(drawn["resourceVersion"])
    assert drawn["name"].startswith("drawn-")
    assert len(drawn["name"]) == len("drawn-12345")


def what_is_there_or_not_is_refused_by_its_name(plane, namespace):
    plane.client.create(config_map(namespace))

    again = refused(lambda: plane.client.create(config_map(namespace)))
    missing = refused(lambda: plane.client.get(*MAPS, "two", namespace=namespace))
    nowhere = refused(lambda: plane.client.create(config_map("no-such-namespace")))

    assert again == (409, 'configmaps "one" already exists')
    assert missing == (404, 'configmaps "two" not found')
    assert nowhere == (404, 'namespaces "no-such-namespace" not found')


def a_dry_run_answers_and_stores_nothing(plane, namespace):
    answer = plane.client.create(config_map(namespace), dry_run=True)

    assert answer["metadata"]["uid"]
    assert plane.client.list(*MAPS, namespace=namespace, selector="mine") == []
    assert plane.client.find(*MAPS, "one", namespace=namespace) is None


def an_older_version_is_no_longer_replaced(plane, namespace):
    first = plane.client.create(config_map(namespace))
    second = plane.client.replace({**first, "data": {"a": "2"}})

    late = refused(lambda: plane.client.replace({**first, "data": {"a": "3"}}))
    unnamed = {**second, "metadata": {**second["metadata"]}, "data": {"a": "4"}}
    del unnamed["metadata"]["resourceVersion"]

    assert late[0] == http.HTTPStatus.CONFLICT
    assert late[1].startswith('Operation cannot be fulfilled on configmaps "one": ')
    assert plane.client.replace(unnamed)["data"] == {"a": "4"}


def what_changes_nothing_makes_no_version(plane, namespace):
    first = plane.client.create(config_map(namespace))

    again = plane.client.patch(*MAPS, "one", {"data": {"a": "1"}}, namespace=namespace)

    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


def a_patch_of_an_older_version_is_a_conflict(plane, namespace):
    version = plane.client.create(config_map(namespace))["metadata"]["resourceVersion"]
    plane.client.patch(*MAPS, "one", {"data": {"a": "2"}}, namespace=namespace)
    named = {"metadata": {"resourceVersion": version}, "data": {"a": "3"}}
    tested = [{"op": "test", "path": "/metadata/resourceVersion", "value": version}]

    late = refused(lambda: plane.client.patch(*MAPS, "one", named, namespace=namespace))
    untrue = refused(lambda: plane.client.patch(*MAPS, "one", tested, namespace=namespace))

    assert (late[0], untrue[0]) == (409, 422)


def patches_change_what_they_name(plane, namespace):
    plane.client.create(config_map(namespace, labels={"kept": "yes"}))

    merged = plane.client.patch(*MAPS, "one", {"data": {"a": None, "b": "2"}}, namespace=namespace)
    operations = [{"op": "add", "path": "/metadata/labels/x~1y", "value": "z"}]
    changed = plane.client.patch(*MAPS, "one", operations, namespace=namespace)

    assert merged["data"] == {"b": "2"}
    assert changed["metadata"]["labels"] == {"kept": "yes", "x/y": "z"}


def an_apply_takes_away_what_only_it_had_set(plane, namespace):
    def apply(manager, data):
        item = {**config_map(namespace), "data": data}
        return plane.client.apply(item, field_manager=manager)

    apply("first", {"a": "1", "b": "2", "c": "3"})
    apply("second", {"b": "2"})
    plane.client.patch(*MAPS, "one", {"data": {"d": "4"}}, namespace=namespace)

    left = apply("first", {"c": "5"})

    assert left["data"] == {"b": "2", "c": "5", "d": "4"}
    entries = left["metadata"]["managedFields"]
    applied = {
        entry["manager"]: entry["fieldsV1"] for entry in entries if entry["operation"] == "Apply"
    }
    assert applied == {
        "first": {"f:data": {"f:c": {}}},
        "second": {"f:data": {"f:b": {}}},
    }


def deletion_takes_place_at_the_version_that_is_meant(plane, namespace):
    first = plane.client.create(config_map(namespace))["metadata"]
    plane.client.patch(*MAPS, "one", {"data": {"a": "2"}}, namespace=namespace)
    preconditions = {"uid": first["uid"], "resourceVersion": first["resourceVersion"]}

    with pytest.raises(Refused) as late:
        client_of(plane).delete(f"{path_of(namespace)}/one", {"preconditions": preconditions})

    assert late.value.is_conflict
    plane.client.delete(*MAPS, "one", namespace=namespace)
    assert plane.client.find(*MAPS, "one", namespace=namespace) is None


def what_has_a_finalizer_is_there_until_it_is_gone(plane, namespace):
    plane.client.create(config_map(namespace, finalizers=["example.com/later"]))

    plane.client.delete(*MAPS, "one", namespace=namespace)
    ending = plane.client.get(*MAPS, "one", namespace=namespace)
    change = {"metadata": {"finalizers": None}}
    plane.client.patch(*MAPS, "one", change, namespace=namespace)

    assert ending["metadata"]["deletionTimestamp"]
    assert plane.client.find(*MAPS, "one", namespace=namespace) is None


def what_is_owned_goes_with_its_owner(plane, namespace):
    owner = plane.client.create(config_map(namespace, "owner"))
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "owner",
        "uid": owner["metadata"]["uid"],
    }
    plane.client.create(config_map(namespace, "owned", ownerReferences=[reference]))

    plane.client.delete(*MAPS, "owner", namespace=namespace)

    wait_for(
        lambda: plane.client.find(*MAPS, "owned", namespace=namespace) is None,
        "the garbage collector deletes it",
    )


def a_list_holds_what_is_selected(plane, namespace):
    for name, labels in (("one", {"x": "1", "y": ""}), ("two", {"x": "2"}), ("three", {})):
        plane.client.create(config_map(namespace, name, labels=labels))
    wanted = {
        "x=1": ["one"],
        "x==1": ["one"],
        "x": ["one", "two"],
        "!x,!kueue": ["three"],
        "x in (2, 3)": ["two"],
        "x notin (2),x": ["one"],
        "x!=1,x": ["two"],
        "y=": ["one"],
    }
    client = client_of(plane)

    def names(**params):
        items = client.get(path_of(namespace), params)["items"]
        return sorted({item["metadata"]["name"] for item in items} - {"kube-root-ca.crt"})

    assert {text: names(labelSelector=text) for text in wanted} == {
        text: sorted(found) for text, found in wanted.items()
    }
    assert names(fieldSelector="metadata.name=two") == ["two"]
    assert names(fieldSelector="metadata.name!=two") == ["one", "three"]


def pages_follow_each_other(plane, namespace):
    for number in range(5):
        plane.client.create(config_map(namespace, f"page-{number}", labels={"page": "yes"}))
    client, params = client_of(plane), {"labelSelector": "page", "limit": "2"}

    first = client.get(path_of(namespace), params)
    plane.client.delete(*MAPS, "page-4", namespace=namespace)
    pages = [first]
    while token := pages[-1]["metadata"].get("continue"):
        pages.append(client.get(path_of(namespace), {**params, "continue": token}))

    assert [len(page["items"]) for page in pages] == [2, 2, 1]
    assert len({page["metadata"]["resourceVersion"] for page in pages}) == 1


def a_watch_follows_a_selection(plane, namespace):
    client = client_of(plane)
    version = client.get(path_of(namespace))["metadata"]["resourceVersion"]
    for labels in ({"seen": "yes"}, {"seen": "yes", "more": "yes"}, {"seen": "no"}):
        item = config_map(namespace, labels=labels)
        plane.client.apply(item)
    plane.client.patch(*MAPS, "one", {"metadata": {"labels": {"seen": "yes"}}}, namespace=namespace)
    plane.client.delete(*MAPS, "one", namespace=namespace)
    params = {
        "resourceVersion": version,
        "labelSelector": "seen=yes",
        "timeoutSeconds": "2",
        "allowWatchBookmarks": "true",
    }

    events = list(client.watch(path_of(namespace), params, read_seconds=300))

    kinds = [event["type"] for event in events if event["type"] != "BOOKMARK"]
    assert kinds == ["ADDED", "MODIFIED", "DELETED", "ADDED", "DELETED"]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(versions)


def metadata_alone_is_to_be_had(plane, namespace):
    plane.client.create(config_map(namespace))
    client = Client(str(plane.kubeconfig), metadata_only=True)

    found = client.get(path_of(namespace), {"fieldSelector": "metadata.name=one"})

    assert found["kind"] == "PartialObjectMetadataList"
    (item,) = found["items"]
    assert item.keys() == {"metadata"} or item["kind"] == "PartialObjectMetadata"
    assert "data" not in item


def a_continue_token_of_nobody_is_refused(plane, namespace):
    with pytest.raises((Gone, Refused)):
        client_of(plane).get(path_of(namespace), {"limit": "1", "continue": "nonsense"})


def status_and_spec_are_written_apart(plane, namespace):
    made = plane.client.create({**job(namespace), "status": {"active": 7}})

    spec = plane.client.patch(*JOBS, "one", {"spec": {"parallelism": 3}}, namespace=namespace)
    change = {"status": {"active": 2}, "spec": {"parallelism": 9}}
    status = plane.client.patch(*JOBS, "one", change, namespace=namespace, subresource="status")

    assert "active" not in made.get("status", {})
    assert made["metadata"]["generation"] == 1
    assert spec["metadata"]["generation"] == 2
    assert status["metadata"]["generation"] == 2
    assert (status["spec"]["parallelism"], status["status"]["active"]) == (3, 2)


def a_job_gets_defaults_and_a_selector(plane, namespace):
    made = plane.client.create(job(namespace))

    spec, name = made["spec"], made["metadata"]["name"]
    uid = made["metadata"]["uid"]
    given = {key: spec[key] for key in ("parallelism", "completions", "backoffLimit", "suspend")}
    assert given == {"parallelism": 1, "completions": 1, "backoffLimit": 6, "suspend": True}
    assert spec["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    assert spec["template"]["metadata"]["labels"] == {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": name,
        "controller-uid": uid,
        "job-name": name,
    }
    (container,) = spec["template"]["spec"]["containers"]
    assert container["resources"] == {"limits": {"cpu": "1"}}
    assert container["imagePullPolicy"] == "Always"


def of_a_pod_what_is_limited_is_asked_for(plane, namespace):
    spec = job(namespace)["spec"]["template"]["spec"]
    metadata = {"name": "one", "namespace": namespace}

    made = plane.client.create(
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, dry_run=True
    )

    (container,) = made["spec"]["containers"]
    assert container["resources"] == {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}
    assert made["status"]["phase"] == "Pending"


def the_template_of_a_job_that_is_not_suspended_does_not_change(plane, namespace):
    plane.client.create(job(namespace, suspend=False))
    change = {"spec": {"template": {"metadata": {"labels": {"new": "label"}}}}}
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs/one"

    with pytest.raises(Refused) as found:
        client_of(plane).patch(path, change)

    assert found.value.status == http.HTTPStatus.UNPROCESSABLE_ENTITY
    assert found.value.keeps_template


def definition(scope="Namespaced"):
    properties = {
        "spec": {
            "type": "object",
            "properties": {"size": {"type": "integer", "default": 3}},
        },
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    }
    schema = {"openAPIV3Schema": {"type": "object", "properties": properties}}
    served = {"served": True, "schema": schema, "subresources": {"status": {}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"things.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": scope,
            "names": {"kind": "Thing", "plural": "things", "singular": "thing"},
            "versions": [
                {"name": "v1beta1", "storage": False, **served},
                {"name": "v1beta2", "storage": True, **served},
            ],
        },
    }


def a_definition_serves_its_kind_in_all_versions(plane, namespace):
    plane.client.create(definition())
    try:
        plane.wait("its kind", lambda: serves(plane))
        item = {
            "apiVersion": f"{GROUP}/v1beta1",
            "kind": "Thing",
            "metadata": {"name": "one", "namespace": namespace},
            "spec": {},
        }
        made = plane.client.create(item)
        other = plane.client.get(f"{GROUP}/v1beta2", "Thing", "one", namespace=namespace)
        group = client_of(plane).get(f"/apis/{GROUP}")
    finally:
        plane.client.delete(
            "apiextensions.k8s.io/v1", "CustomResourceDefinition", f"things.{GROUP}"
        )

    assert (made["apiVersion"], made["spec"]) == (f"{GROUP}/v1beta1", {"size": 3})
    assert (other["apiVersion"], other["spec"]) == (f"{GROUP}/v1beta2", {"size": 3})
    assert [each["version"] for each in group["versions"]] == ["v1beta2", "v1beta1"]
    wait_for(lambda: not serves(plane), "its kind is gone")


def serves(plane):
    try:
        found = plane.client.send("GET", f"/apis/{GROUP}/v1beta2").json()["resources"]
    except ApiError:
        return False
    return {each["name"] for each in found} == {"things", "things/status"}


def who_asks_is_known(plane, namespace):
    path = plane.client.path("v1", "ServiceAccount", namespace=namespace, name="asks")
    plane.client.create(
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "asks", "namespace": namespace},
        }
    )
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = plane.client.send("POST", f"{path}/token", asked).json()["status"]["token"]
    review = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": token},
    }

    def reviewed(**spec):
        item = {**review, "spec": spec}
        return plane.client.send("POST", "/apis/authentication.k8s.io/v1/tokenreviews", item).json()

    known = reviewed(token=token)["status"]
    unknown = reviewed(token="nonsense")["status"]

    assert known["authenticated"]
    assert known["user"]["username"] == f"system:serviceaccount:{namespace}:asks"
    assert not unknown.get("authenticated")


ALL = (
    what_is_created_gets_an_identity,
    what_is_there_or_not_is_refused_by_its_name,
    a_dry_run_answers_and_stores_nothing,
    an_older_version_is_no_longer_replaced,
    what_changes_nothing_makes_no_version,
    a_patch_of_an_older_version_is_a_conflict,
    patches_change_what_they_name,
    an_apply_takes_away_what_only_it_had_set,
    deletion_takes_place_at_the_version_that_is_meant,
    what_has_a_finalizer_is_there_until_it_is_gone,
    what_is_owned_goes_with_its_owner,
    a_list_holds_what_is_selected,
    pages_follow_each_other,
    a_watch_follows_a_selection,
    metadata_alone_is_to_be_had,
    a_continue_token_of_nobody_is_refused,
    status_and_spec_are_written_apart,
    a_job_gets_defaults_and_a_selector,
    of_a_pod_what_is_limited_is_asked_for,
    the_template_of_a_job_that_is_not_suspended_does_not_change,
    a_definition_serves_its_kind_in_all_versions,
    who_asks_is_known,
)
