"""Who may see what, by an API server that is a function."""

import pytest

from webhook.api.kubernetes_api import Forbidden, Unreachable
from webhook.console import access
from webhook.console.access import Reviews, TooMany, Unanswered, Unknown

QUEUES = {"group": "kueue.x-k8s.io", "resource": "clusterqueues"}
PEER = "10.0.0.1"
USER = {
    "username": "ann",
    "uid": "1",
    "groups": ["team", "system:authenticated"],
    "extra": {"scopes": ["a", "b"]},
}


class ApiServer:
    """Knows one token, and answers what ``allowed`` says of ``resourceAttributes``."""

    def __init__(self, allowed=lambda _: True, **status):
        self.allowed, self.asked, self.now = allowed, [], 0.0
        self.status = {"authenticated": True, "user": USER, **status}

    def post(self, path, body):
        spec = body["spec"]
        self.asked.append((body["kind"], spec))
        if body["kind"] == "TokenReview":
            assert path == "/apis/authentication.k8s.io/v1/tokenreviews"
            known = spec["token"] == "good"
            return {"status": self.status if known else {"error": "no"}}
        assert path == "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        return {"status": {"allowed": self.allowed(spec["resourceAttributes"])}}

    def reviews(self, audience=""):
        return Reviews(self.post, audience, clock=lambda: self.now)

    def rights(self):
        return [
            (spec["resourceAttributes"]["verb"], spec["resourceAttributes"]["name"])
            for kind, spec in self.asked
            if kind == "SubjectAccessReview"
        ]


def test_a_user_is_asked_about_with_all_that_is_known_of_them():
    server = ApiServer()

    found = server.reviews().rights_of("Bearer good", PEER).may_get(["gpu-cq"], **QUEUES)

    assert found == {"gpu-cq"}
    assert server.asked == [
        ("TokenReview", {"token": "good"}),
        (
            "SubjectAccessReview",
            {
                "user": "ann",
                "uid": "1",
                "groups": ["system:authenticated", "team"],
                "extra": {"scopes": ["a", "b"]},
                "resourceAttributes": {
                    "verb": "get",
                    "group": "kueue.x-k8s.io",
                    "resource": "clusterqueues",
                    "namespace": "",
                    "name": "gpu-cq",
                },
            },
        ),
    ]


@pytest.mark.parametrize(
    "header",
    ["", "good", "Basic good", "Bearer", "Bearer  ", "Bearer bad", f"Bearer {'x' * 20_000}"],
)
def test_without_a_token_that_is_known_there_is_nobody(header):
    with pytest.raises(Unknown):
        ApiServer().reviews().rights_of(header, PEER)


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_the_scheme_may_be_written_anyhow(scheme):
    assert ApiServer().reviews().rights_of(f"{scheme} good", PEER) is not None


@pytest.mark.parametrize(
    ("audience", "audiences", "is_known"),
    [
        ("", ["https://kubernetes.default.svc"], True),
        ("", [], True),
        ("console", ["console"], True),
        ("console", ["console", "other"], True),
        ("console", ["https://kubernetes.default.svc"], False),
        ("console", [], False),
    ],
)
def test_a_token_must_be_meant_for_the_console(audience, audiences, is_known):
    server = ApiServer(audiences=audiences)

    if is_known:
        server.reviews(audience).rights_of("Bearer good", PEER)
    else:
        with pytest.raises(Unknown):
            server.reviews(audience).rights_of("Bearer good", PEER)
    _, spec = server.asked[0]
    assert spec.get("audiences") == ([audience] if audience else None)


def test_answers_are_remembered_for_seconds_and_not_longer():
    server = ApiServer()
    reviews = server.reviews()

    for _ in range(3):
        reviews.rights_of("Bearer good", PEER).may_get(["gpu-cq"], **QUEUES)
    first = len(server.asked)
    server.now = access.REMEMBERED_SECONDS + 0.1
    server.allowed = lambda _: False
    later = reviews.rights_of("Bearer good", PEER).may_get(["gpu-cq"], **QUEUES)

    assert (first, later, len(server.asked)) == (2, frozenset(), 4)


def test_a_refusal_is_remembered_too():
    server = ApiServer()
    reviews = server.reviews()

    for _ in range(3):
        with pytest.raises(Unknown):
            reviews.rights_of("Bearer bad", PEER)

    assert len(server.asked) == 1


def test_an_address_that_makes_tokens_up_costs_the_api_server_few_reviews():
    server = ApiServer()
    reviews = server.reviews()
    known = reviews.rights_of("Bearer good", PEER)

    refusals = []
    for number in range(200):
        with pytest.raises((Unknown, TooMany)) as refused:
            reviews.rights_of(f"Bearer made-up-{number}", PEER)
        refusals.append(refused.type)

    assert refusals == [Unknown] * access.MOST_UNKNOWN + [TooMany] * (200 - access.MOST_UNKNOWN)
    assert len(server.asked) == 1 + access.MOST_UNKNOWN
    # Who is known goes on there, others elsewhere, and all of them later.
    assert reviews.rights_of("Bearer good", PEER).requester == known.requester
    with pytest.raises(Unknown):
        reviews.rights_of("Bearer bad", "10.0.0.2")
    server.now += access.REMEMBERED_SECONDS
    with pytest.raises(Unknown):
        reviews.rights_of("Bearer bad", PEER)


def test_no_more_answers_are_remembered_than_the_bound(monkeypatch):
    monkeypatch.setattr(access, "REMEMBERED", 3)
    server = ApiServer()
    rights = server.reviews().rights_of("Bearer good", PEER)

    for name in ("a", "b", "c", "d", "d", "a"):
        rights.may_get([name], **QUEUES)

    assert [name for _, name in server.rights()] == ["a", "b", "c", "d", "a"]


def test_who_may_list_is_not_asked_about_one_by_one():
    server = ApiServer()

    found = server.reviews().rights_of("Bearer good", PEER).may_get(["a", "b", "c"], **QUEUES)

    assert (found, server.rights()) == ({"a", "b", "c"}, [("list", "")])


def test_who_may_get_some_sees_these():
    server = ApiServer(allowed=lambda asked: asked["name"] == "b")

    found = server.reviews().rights_of("Bearer good", PEER).may_get(["c", "b", "a"], **QUEUES)

    assert found == {"b"}
    assert server.rights() == [("list", ""), ("get", "a"), ("get", "b"), ("get", "c")]


def test_about_thousands_is_not_asked():
    server = ApiServer(allowed=lambda asked: asked["verb"] == "get")

    found = server.reviews().rights_of("Bearer good", PEER).may_get(map(str, range(1000)), **QUEUES)

    assert len(found) == access.ASKED


def test_jobs_are_asked_about_by_namespace():
    server = ApiServer(allowed=lambda asked: asked["namespace"] == "team")

    found = server.reviews().rights_of("Bearer good", PEER).may_list_jobs(["other", "team", "team"])

    asked = [spec["resourceAttributes"] for _, spec in server.asked[1:]]
    assert found == {"team"}
    assert [(each["resource"], each["namespace"]) for each in asked] == [
        ("jobs", ""),
        ("jobs", "other"),
        ("jobs", "team"),
    ]


@pytest.mark.parametrize(
    "error", [Unreachable("timed out"), Forbidden("/apis", "cannot create tokenreviews")]
)
def test_an_api_server_that_does_not_say_is_no_yes_and_is_asked_again(error):
    asked = []

    def post(path, body):
        asked.append(path)
        raise error

    reviews = Reviews(post)
    for _ in range(2):
        with pytest.raises(Unanswered):
            reviews.rights_of("Bearer good", PEER)

    assert len(asked) == 2


@pytest.mark.parametrize("status", [{"user": "ann"}, {"user": {"groups": "x"}}, {"audiences": 1}])
def test_an_answer_that_cannot_be_read_is_none(status):
    with pytest.raises(Unanswered):
        ApiServer(**status).reviews("console" if "audiences" in status else "").rights_of(
            "Bearer good", PEER
        )
