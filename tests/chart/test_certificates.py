"""Where the webhook's certificate comes from, in each of the three modes."""

from tests.chart.values import CERT_MANAGER, CERT_MANAGER_ISSUER

NAME = "kueue-fallback-ca"
FILES = {"certificates.mode": '"files"'}
OURS = {
    ("Secret", NAME),
    ("Role", NAME),
    ("RoleBinding", NAME),
    ("ClusterRole", NAME),
    ("ClusterRoleBinding", NAME),
}
CERT_MANAGERS = {("Issuer", NAME), ("Issuer", f"{NAME}-self-signed"), ("Certificate", NAME)}
LEAF = ("Certificate", "kueue-fallback")


def about_certificates(rendering):
    everything = OURS | CERT_MANAGERS | {LEAF}
    return everything & set(rendering.objects)


def test_each_mode_has_its_own_objects_and_no_others(render):
    assert about_certificates(render()) == OURS
    assert about_certificates(render(CERT_MANAGER)) == {LEAF} | CERT_MANAGERS
    assert about_certificates(render(CERT_MANAGER_ISSUER)) == {LEAF}
    assert about_certificates(render(FILES)) == set()


def test_the_authoritys_secret_is_empty_so_that_an_upgrade_leaves_its_data_alone(render):
    secret = render().one("Secret", NAME)

    assert sorted(secret) == ["apiVersion", "kind", "metadata", "type"]
    assert secret["type"] == "Opaque"
    assert secret["metadata"]["namespace"] == "ours"
    assert "annotations" not in secret["metadata"]


def test_the_webhook_writes_its_own_secret_and_its_own_webhook_configuration_alone(render):
    rendering = render()

    assert rendering.one("Role", NAME)["rules"] == [
        {
            "apiGroups": [""],
            "resources": ["secrets"],
            "resourceNames": [NAME],
            "verbs": ["get", "update"],
        },
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]},
    ]
    assert rendering.one("ClusterRole", NAME)["rules"] == [
        {
            "apiGroups": ["admissionregistration.k8s.io"],
            "resources": ["mutatingwebhookconfigurations"],
            "resourceNames": ["kueue-fallback"],
            "verbs": ["get", "patch"],
        }
    ]
    subjects = [{"kind": "ServiceAccount", "name": "kueue-fallback", "namespace": "ours"}]
    assert rendering.one("RoleBinding", NAME)["subjects"] == subjects
    assert rendering.one("ClusterRoleBinding", NAME)["subjects"] == subjects


def test_cert_managers_certificate_is_for_the_service_and_from_the_releases_authority(render):
    rendering = render(CERT_MANAGER)

    leaf, authority = rendering.one(*LEAF)["spec"], rendering.one("Certificate", NAME)["spec"]
    assert leaf["dnsNames"] == [
        "kueue-fallback.ours.svc",
        "kueue-fallback.ours.svc.cluster.local",
    ]
    assert leaf["secretName"] == "kueue-fallback-tls"
    assert leaf["issuerRef"] == {"name": NAME, "kind": "Issuer", "group": "cert-manager.io"}
    assert rendering.one("Issuer", NAME)["spec"] == {"ca": {"secretName": authority["secretName"]}}
    assert authority["isCA"]
    assert authority["issuerRef"]["name"] == f"{NAME}-self-signed"
    assert rendering.one("Issuer", f"{NAME}-self-signed")["spec"] == {"selfSigned": {}}


def test_cert_manager_can_be_given_another_issuer(render):
    leaf = render(CERT_MANAGER_ISSUER).one(*LEAF)["spec"]

    assert leaf["issuerRef"] == {"name": "company", "kind": "Issuer", "group": "cert-manager.io"}
