"""Kinds that are asked and not stored: who somebody is, and what they may. Everybody may all."""

from collections.abc import Mapping

from hack.api import Object

_GROUPS = {
    "authentication.k8s.io": ("tokenreviews", "selfsubjectreviews"),
    "authorization.k8s.io": ("subjectaccessreviews",),
}
VERSION = "v1"
_KINDS = {
    "tokenreviews": "TokenReview",
    "selfsubjectreviews": "SelfSubjectReview",
    "subjectaccessreviews": "SubjectAccessReview",
}


def groups() -> dict[str, tuple[str, ...]]:
    return dict.fromkeys(_GROUPS, (VERSION,))


def resources(group: str) -> list[Object]:
    return [
        {
            "name": plural,
            "singularName": _KINDS[plural].lower(),
            "namespaced": False,
            "kind": _KINDS[plural],
            "verbs": ["create"],
        }
        for plural in _GROUPS.get(group, ())
    ]


def answered(plural: str, item: Object, user: Object, users: Mapping[str, Object]) -> Object | None:
    """Return the object with its status; None: there is no such kind. *users*: by their tokens."""
    match plural:
        case "tokenreviews":
            known = users.get(item.get("spec", {}).get("token", ""))
            found = {"authenticated": True, "user": known} if known else {"authenticated": False}
            return {**item, "status": found}
        case "selfsubjectreviews":
            return {**item, "status": {"userInfo": user}}
        case "subjectaccessreviews":
            return {**item, "status": {"allowed": True, "reason": "nobody has fewer rights here"}}
        case _:
            return None


def token_of(namespace: str, name: str, token: str, request: Object) -> Object:
    """Return the answer to a TokenRequest."""
    seconds = request.get("spec", {}).get("expirationSeconds", 3600)
    status = {"token": token, "expirationTimestamp": "2999-01-01T00:00:00Z"}
    return {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"audiences": [], **request.get("spec", {}), "expirationSeconds": seconds},
        "status": status,
    }


def account(namespace: str, name: str) -> Object:
    """Return who a ServiceAccount is."""
    return {
        "username": f"system:serviceaccount:{namespace}:{name}",
        "groups": [
            "system:serviceaccounts",
            f"system:serviceaccounts:{namespace}",
            "system:authenticated",
        ],
    }
