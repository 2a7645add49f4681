"""What becomes of the API server's answers."""

from pathlib import Path

import pytest
import yaml

from certs.client import Client
from certs.store import Conflict, Missing, Unavailable
from tests.commands.apiserver import serving


class Server:
    """Answers as it is told, and remembers what it was asked."""

    def __init__(self):
        self.status, self.object = 200, {}
        self.asked, self.heard = [], []

    def answer(self, *call):
        self.asked.append(call)
        return self.status, [], self.object

    def headers(self, name):
        return [headers[name] for headers in self.heard]


@pytest.fixture
def server(tmp_path):
    found = Server()
    with serving(found.answer, tmp_path, heard=found.heard) as found.kubeconfig:
        yield found


@pytest.fixture
def client(server):
    return Client(server.kubeconfig)


def test_calls_carry_the_token_and_say_what_they_are(server, client):
    client.get("/a")
    client.post("/a", {"x": 1})
    client.put("/a", {"x": 2})
    client.patch("/a", [])

    assert server.asked == [
        ("GET", "/a", None),
        ("POST", "/a", {"x": 1}),
        ("PUT", "/a", {"x": 2}),
        ("PATCH", "/a", []),
    ]
    assert server.headers("Authorization") == ["Bearer t"] * 4
    assert server.headers("Content-Type") == [
        *["application/json"] * 3,
        "application/json-patch+json",
    ]


@pytest.mark.parametrize("status", [409, 422])
def test_whoever_was_second_is_told_so(server, client, status):
    server.status, server.object = status, {"message": "modified"}

    with pytest.raises(Conflict, match="modified"):
        client.put("/a", {})


def test_what_is_not_there_is_missing(server, client):
    server.status = 404

    with pytest.raises(Missing, match="/a: not found"):
        client.get("/a")


@pytest.mark.parametrize(("status", "reached"), [(403, True), (401, True), (503, False)])
def test_a_refusal_and_a_failure_are_told_apart(server, client, status, reached):
    server.status, server.object = status, {"message": "no"}

    with pytest.raises(Unavailable, match="no") as refusal:
        client.get("/a")

    assert refusal.value.reached == reached


def test_credentials_that_are_refused_are_read_again(server, client):
    server.status = 401
    with pytest.raises(Unavailable):
        client.get("/a")
    server.status, path = 200, Path(server.kubeconfig)
    path.write_text(path.read_text().replace("token: t", "token: second"))

    client.get("/a")

    assert server.headers("Authorization") == ["Bearer t", "Bearer second"]


def test_nobody_there_is_told_as_such(tmp_path):
    with serving(lambda *_: (200, [], {}), tmp_path) as kubeconfig:
        client = Client(kubeconfig)

    with pytest.raises(Unavailable) as refusal:
        client.get("/a")

    assert not refusal.value.reached


def test_what_is_wrong_in_a_kubeconfig_is_said_with_its_file_and_without_what_is_secret(server):
    path = Path(server.kubeconfig)
    content = {**yaml.safe_load(path.read_text()), "users": [{"name": "u", "token": "secret"}]}
    path.write_text(yaml.safe_dump(content))

    with pytest.raises(Unavailable) as error:
        Client(server.kubeconfig).get("/a")

    assert str(error.value) == (f"{path}: Invalid kube-config file. Expected key user in {path}")


@pytest.mark.parametrize(
    ("token", "heard"), [("secret\n", ["Bearer secret"]), ("secret\nsecond", [])]
)
def test_a_token_ends_with_its_line_and_one_of_two_lines_is_not_quoted(server, token, heard):
    path, file = Path(server.kubeconfig), Path(server.kubeconfig).with_name("token")
    file.write_text(token)
    path.write_text(path.read_text().replace("token: t", f"tokenFile: {file}"))
    client = Client(server.kubeconfig)

    if heard:
        client.get("/a")
    else:
        with pytest.raises(Unavailable, match="expected a token of one line of ASCII"):
            client.get("/a")

    assert server.headers("Authorization") == heard
