"""Who may ask for a decision: a client's certificate, the path, and what the notes say."""

import json

import pytest
import yaml

from tests.chart.values import EVERYTHING

PEM = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"
FIRST, SECOND = "first-segment-of-a-path-0", "second-segment-of-a-path-"
FROM = '[{"ipBlock": {"cidr": "10.0.0.0/28"}}]'


def settings(rendering):
    return yaml.safe_load(rendering.one("ConfigMap")["data"]["settings.yaml"])


def volume(rendering, name):
    """Return a volume of the server's pod and where it is mounted; None: there is none."""
    spec = rendering.pod()["spec"]
    mounts = {each["name"]: each for each in spec["containers"][0]["volumeMounts"]}
    found = [each for each in spec["volumes"] if each["name"] == name]
    return (found[0], mounts[name]["mountPath"]) if found else None


def paths(rendering):
    configuration = rendering.one("MutatingWebhookConfiguration")
    return {each["clientConfig"]["service"]["path"] for each in configuration["webhooks"]}


def test_by_default_nobody_is_asked_for_a_certificate_and_the_path_is_plain(render):
    rendering = render()

    assert not {"client_ca", "client_names", "path_segments"} & set(settings(rendering))
    assert (volume(rendering, "client-ca"), volume(rendering, "path")) == (None, None)
    assert paths(rendering) == {"/mutate"}
    assert ("ConfigMap", "kueue-fallback-client-ca") not in rendering.objects
    assert ("Secret", "kueue-fallback-path") not in rendering.objects


def test_an_authority_of_clients_comes_as_text_and_is_mounted(render):
    rendering = render({"webhook.clientCA.pem": json.dumps(PEM)})

    config_map = rendering.one("ConfigMap", "kueue-fallback-client-ca")
    assert config_map["data"] == {"ca.crt": f"{PEM}\n"}
    items = [{"key": "ca.crt", "path": "ca.crt"}]
    source = {"name": "kueue-fallback-client-ca", "items": items}
    assert volume(rendering, "client-ca") == (
        {"name": "client-ca", "configMap": source},
        "/client-ca",
    )
    assert settings(rendering)["client_ca"] == "/client-ca/ca.crt"
    assert "client_names" not in settings(rendering)


@pytest.mark.parametrize(
    ("kind", "source", "name"),
    [("ConfigMap", "configMap", "name"), ("Secret", "secret", "secretName")],
)
def test_an_authority_of_clients_may_lie_in_an_object_of_the_admins(render, kind, source, name):
    given = {"kind": kind, "name": "theirs", "key": "bundle.pem"}
    rendering = render(
        {"webhook.clientCA.from": json.dumps(given), "webhook.clientCA.names": '["apiserver"]'}
    )

    found, _ = volume(rendering, "client-ca")
    assert found[source] == {name: "theirs", "items": [{"key": "bundle.pem", "path": "ca.crt"}]}
    assert settings(rendering)["client_names"] == ["apiserver"]
    assert ("ConfigMap", "kueue-fallback-client-ca") not in rendering.objects


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (
            {"webhook.clientCA.pem": json.dumps(PEM), "webhook.clientCA.from.name": '"theirs"'},
            "webhook.clientCA: give pem or from.name, not both",
        ),
        (
            {"webhook.clientCA.names": '["apiserver"]'},
            "webhook.clientCA.names: need an authority that vouches for them",
        ),
    ],
)
def test_values_that_do_not_go_together_are_refused(template, values, told):
    result = template(values)

    assert result.returncode == 1
    assert told in result.stderr


def test_the_first_segment_is_called_and_all_are_answered(render):
    rendering = render({"webhook.pathSegments": json.dumps([FIRST, SECOND])})

    assert paths(rendering) == {f"/mutate/{FIRST}"}
    secret = rendering.one("Secret", "kueue-fallback-path")
    assert json.loads(secret["stringData"]["segments.json"]) == [FIRST, SECOND]
    assert volume(rendering, "path") == (
        {"name": "path", "secret": {"secretName": "kueue-fallback-path"}},
        "/path",
    )
    assert settings(rendering)["path_segments"] == "/path/segments.json"


def test_an_empty_first_segment_goes_on_calling_the_plain_path(render):
    assert paths(render({"webhook.pathSegments": json.dumps(["", FIRST])})) == {"/mutate"}


def test_another_segment_starts_new_servers_and_is_in_nothing_that_many_may_read(render):
    before, after = (
        render({"webhook.pathSegments": json.dumps([each])}) for each in (FIRST, SECOND)
    )

    sums = [each.pod()["metadata"]["annotations"]["checksum/path"] for each in (before, after)]
    assert sums[0] != sums[1]
    showing = [key for key, each in after.objects.items() if SECOND in json.dumps(each)]
    assert sorted(showing) == [
        ("MutatingWebhookConfiguration", "kueue-fallback"),
        ("Secret", "kueue-fallback-path"),
    ]
    controller = after.pod("kueue-fallback-controller")["metadata"]["annotations"]
    assert "checksum/path" not in controller


@pytest.fixture(scope="module")
def notes(helm):
    def run(values):
        given = [f"--set-json={key}={value}" for key, value in values.items()]
        chart = ("kueue-fallback", "helm", "-n", "ours", "--dry-run=client")
        result = helm("install", *chart, *given)
        assert result.returncode == 0, result.stderr
        return result.stdout.partition("NOTES:")[2]

    return run


SEGMENTS = {"webhook.pathSegments": json.dumps([FIRST])}


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({}, "pods may ask it for decisions"),
        (SEGMENTS, "pods and learns the path may ask it"),
        ({"networkPolicy.enabled": "true"}, "pods may ask it"),
        (
            {"networkPolicy.reviewsFrom": FROM, "hostNetwork": "true", "webhook.port": "10260"},
            "no effect on the nodes' network",
        ),
    ],
)
def test_the_notes_warn_where_everybody_may_ask(notes, values, told):
    text = notes(values)

    assert "WARNING: everybody who reaches port 10250" in text.replace("10260", "10250")
    assert told in text
    assert ("- webhook.pathSegments:" in text) == (values != SEGMENTS)


@pytest.mark.parametrize(
    "values",
    [
        {"networkPolicy.reviewsFrom": FROM},
        {"webhook.clientCA.pem": json.dumps(PEM)},
        EVERYTHING,
    ],
)
def test_the_notes_do_not_warn_where_only_the_api_server_may_ask(notes, values):
    assert "WARNING" not in notes(values)
