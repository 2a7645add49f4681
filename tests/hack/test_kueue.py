"""Kueue's chart, changed so that Kueue runs outside of the cluster."""

import yaml

from hack import kueue

CONFIG_MAP = {
    "kind": "ConfigMap",
    "metadata": {"name": "kueue-manager-config"},
    "data": {
        "controller_manager_config.yaml": yaml.safe_dump(
            {
                "webhook": {"port": 9443},
                "controller": {"groupKindConcurrency": {"Job.batch": 5}},
                "integrations": {"frameworks": ["batch/job", "pod"]},
            }
        )
    },
}
PORTS = {"webhook": 1234, "health": 1235}


def _configuration(extra):
    return kueue.configuration([CONFIG_MAP], ports=PORTS, certificates="/certs", extra=extra)


def test_the_charts_configuration_is_kept_where_loopback_does_not_ask_for_more():
    assert _configuration({}) == {
        "webhook": {"port": 1234, "host": "127.0.0.1", "certDir": "/certs"},
        "controller": {"groupKindConcurrency": {"Job.batch": 5}},
        "leaderElection": {"leaderElect": False},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": "127.0.0.1:1235"},
        "clientConnection": {"qps": 1000, "burst": 2000},
        "featureGates": {"VisibilityOnDemand": False},
        "integrations": {"frameworks": ["batch/job"]},
    }


def test_extra_configuration_is_merged_mapping_by_mapping():
    config = _configuration({"featureGates": {"PartialAdmission": False}, "fairSharing": {}})

    assert config["featureGates"] == {"VisibilityOnDemand": False, "PartialAdmission": False}
    assert config["fairSharing"] == {}


def objects(*rendered, config=None):
    certificate = {"ca.crt": "authority", "tls.crt": "leaf"}
    return kueue.objects(
        rendered, port=1, certificate=certificate, config=config or {}, version="v0.19.2"
    )


def test_the_config_map_gets_the_configuration_and_what_is_not_served_is_left_out():
    service = {"kind": "APIService", "metadata": {"name": "kueue"}}

    (config_map,) = objects(CONFIG_MAP, service, config={"a": 1})

    assert config_map["data"] == {"controller_manager_config.yaml": "a: 1\n"}
    assert "a: 1" not in CONFIG_MAP["data"]["controller_manager_config.yaml"]


def test_the_deployment_says_what_runs_and_runs_nothing_itself():
    manager = {"name": "manager", "image": "host:5000/kueue:main", "args": ["--config=/a.yaml"]}
    spec = {"replicas": 1, "template": {"spec": {"containers": [manager]}}}
    deployment = {"kind": "Deployment", "metadata": {"name": "kueue"}, "spec": spec}

    (found,) = objects(deployment)

    changed = {**manager, "image": "host:5000/kueue:v0.19.2"}
    assert found["spec"] == {"replicas": 0, "template": {"spec": {"containers": [changed]}}}


def test_a_certificate_that_is_there_before_kueue_starts_is_trusted_by_whoever_calls_it():
    secret = {"kind": "Secret", "metadata": {"name": "kueue-webhook-server-cert"}}
    called = {"clientConfig": {"service": {"name": "kueue-webhook-service", "port": 443}}}
    hooks = {"kind": "ValidatingWebhookConfiguration", "webhooks": [called]}
    definition = {
        "kind": "CustomResourceDefinition",
        "spec": {"conversion": {"strategy": "Webhook", "webhook": called}},
    }

    filled, *callers = objects(
        secret, *({**item, "metadata": {"name": "any"}} for item in (hooks, definition))
    )

    assert filled["data"] == {"ca.crt": "authority", "tls.crt": "leaf"}
    trusting = [callers[0]["webhooks"][0], callers[1]["spec"]["conversion"]["webhook"]]
    assert [caller["clientConfig"]["caBundle"] for caller in trusting] == ["authority"] * 2


def test_a_definition_loses_its_texts_and_keeps_a_field_that_is_called_so():
    fields = {"description": {"type": "string", "description": "What it is for."}}
    schema = {"description": "A queue.", "type": "object", "properties": fields}
    definition = {
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "any"},
        "spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}]},
    }

    (found,) = objects(definition)

    kept = {"type": "object", "properties": {"description": {"type": "string"}}}
    assert found["spec"]["versions"] == [{"name": "v1", "schema": {"openAPIV3Schema": kept}}]
    assert schema["description"] == "A queue."


def test_a_service_becomes_a_name_for_localhost():
    service = {"kind": "Service", "metadata": {"name": "hook"}, "spec": {"selector": {"a": "b"}}}

    kueue.point_at_loopback(service, service="hook", port=7)

    assert service["spec"] == {
        "type": "ExternalName",
        "externalName": "localhost",
        "ports": [{"name": "https", "port": 7}],
    }


def test_webhooks_and_conversions_of_the_service_get_the_port_and_others_keep_theirs():
    def webhook(name):
        return {"clientConfig": {"service": {"name": name, "port": 443}}}

    configuration = {
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "any"},
        "webhooks": [webhook("hook"), webhook("other")],
    }
    definition = {
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "any"},
        "spec": {"conversion": {"webhook": webhook("hook")}},
    }

    kueue.point_at_loopback(configuration, service="hook", port=7)
    kueue.point_at_loopback(definition, service="hook", port=7)

    called = [hook["clientConfig"]["service"]["port"] for hook in configuration["webhooks"]]
    conversion = definition["spec"]["conversion"]["webhook"]
    assert called == [7, 443]
    assert conversion["clientConfig"]["service"]["port"] == 7
