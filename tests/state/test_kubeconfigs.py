"""Secrets with kubeconfigs of worker clusters, as a scripted API server holds them."""

import base64

import pytest
import yaml

from webhook.api.kubernetes_api import Forbidden, NotServed, Unreachable
from webhook.state.cluster_watches import Kubeconfig, KubeconfigReader

TOKEN = {"token": "secret"}
SECRET = "/api/v1/namespaces/ours/secrets/kueue-fallback-worker-gpu"


def kubeconfig(user=None, **cluster):
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "clusters": [{"name": "x", "cluster": {"server": "https://worker", **cluster}}],
        "users": [{"name": "x", "user": user or TOKEN}],
    }


def secret(text):
    return {"data": {"kubeconfig": base64.b64encode(text.encode()).decode()}}


class Secrets:
    """Answers with what it holds, or fails as it is told to."""

    def __init__(self, content):
        self.held = {SECRET: content}

    def get(self, path, params=None):
        found = self.held[path]
        if isinstance(found, Exception):
            raise found
        return found


class Look:
    """Looks once, and again."""

    def __init__(self, secrets, names=("gpu",)):
        self.told, self.names = [], names
        self.reader = KubeconfigReader(
            "ours", secrets, lambda: self.names, self.told.append, wait=int
        )

    def again(self):
        self.reader.step()
        return self.told[-1]


def test_a_kubeconfig_is_read_by_the_name_of_its_cluster():
    secrets = Secrets(secret(yaml.safe_dump(kubeconfig())))

    assert Look(secrets).again() == (Kubeconfig("gpu", kubeconfig()),)
    assert Look(secrets, names=()).again() == ()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (NotServed(SECRET), "there is no Secret kueue-fallback-worker-gpu"),
        (secret("{"), "Secret kueue-fallback-worker-gpu: data.kubeconfig: expected a kubeconfig"),
        ({"data": {"kubeconfig": "*"}}, "expected a kubeconfig"),
        (secret(yaml.safe_dump(kubeconfig({"exec": {"command": "sh"}}))), "user.exec: not allowed"),
        (secret(yaml.safe_dump(kubeconfig({"tokenFile": "/token"}))), "tokenFile: not allowed"),
        (
            secret(yaml.safe_dump(kubeconfig(**{"insecure-skip-tls-verify": True}))),
            "cluster.insecure-skip-tls-verify: not allowed",
        ),
        (
            secret(yaml.safe_dump(kubeconfig({"token": "secret\n"}))),
            "data.kubeconfig.users[0].user.token: expected one line of ASCII",
        ),
        (
            secret(yaml.safe_dump(kubeconfig(**{"tls-server-name": 5}))),
            "cluster.tls-server-name: expected a string, got a number",
        ),
        (Forbidden(SECRET, "cannot get"), "cannot get"),
    ],
)
def test_what_cannot_be_used_is_said_without_what_is_secret(content, problem):
    (found,) = Look(Secrets(content)).again()

    assert found.content is None
    assert problem in found.problem
    assert "secret" not in found.problem


def test_while_nobody_answers_all_is_as_before():
    secrets = Secrets(secret(yaml.safe_dump(kubeconfig())))
    looking = Look(secrets)
    before = looking.again()
    secrets.held[SECRET] = Unreachable("no answer")

    assert looking.again() == before
    assert Look(secrets).again() == ()


def test_a_rotated_kubeconfig_and_a_cluster_that_is_gone_are_noticed():
    secrets = Secrets(secret(yaml.safe_dump(kubeconfig())))
    looking = Look(secrets)
    looking.again()
    secrets.held[SECRET] = secret(yaml.safe_dump(kubeconfig({"token": "other"})))

    rotated = looking.again()
    looking.names = ()

    assert rotated == (Kubeconfig("gpu", kubeconfig({"token": "other"})),)
    assert looking.again() == ()
