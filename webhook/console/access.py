"""Who may see what: the API server's answers about a bearer token, cached for seconds.

What is shown is not known here, only names, namespaces and rights.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from webhook.api.kubernetes_api import ClusterError
from webhook.jobs import BY_NAME
from webhook.model import fields
from webhook.model.fields import FieldError
from webhook.model.job import PLAIN, Requester, read_requester

REMEMBERED_SECONDS = 10.0
"""A right that was revoked works for so long, at most."""
REMEMBERED = 5_000
"""Cached answers; beyond, the oldest are dropped."""
ASKED = 200
"""Names checked one by one for one response; the rest is left out."""
LONGEST_TOKEN = 16_384
MOST_UNKNOWN = 20
"""Tokens of nobody's that one address may send within ``REMEMBERED_SECONDS``: each new token costs
the API server a review."""
_TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_Value = TypeVar("_Value")


class Unknown(Exception):  # noqa: N818 - a refusal, not an error
    """There is no token, or none that the API server knows."""


class TooMany(Exception):  # noqa: N818 - likewise
    """Too many tokens of nobody's came from that address lately to ask about one more."""


class Unanswered(Exception):  # noqa: N818 - likewise
    """The API server did not answer."""


class AccessQuery(NamedTuple):
    """One right, as in ``resourceAttributes``."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""


class Rights:
    """What a user of the console may see."""

    def __init__(self, has: Callable[[AccessQuery], bool], requester: Requester | None) -> None:
        """Ask *has* about each right of *requester*; None: it is not known who asks."""
        self._has, self.requester = has, requester

    def may_get(self, names: Iterable[str], *, group: str, resource: str) -> frozenset[str]:
        """Return which of these cluster-scoped objects the user may get."""
        wanted = sorted(set(names))
        if len(wanted) > 1 and self._has(AccessQuery("list", group, resource)):
            return frozenset(wanted)
        return frozenset(
            name
            for name in wanted[:ASKED]
            if self._has(AccessQuery("get", group, resource, name=name))
        )

    def may_list_jobs(self, namespaces: Iterable[str], kind: str = PLAIN) -> frozenset[str]:
        """Return the namespaces in which the user may list Jobs of a kind."""
        known = BY_NAME.get(kind)
        if known is None:
            return frozenset()
        # The newest decisions come first, so their namespaces are checked.
        wanted = tuple(dict.fromkeys(namespaces))
        asked = AccessQuery("list", known.group, known.plural)
        if len(wanted) > 1 and self._has(asked):
            return frozenset(wanted)
        return frozenset(
            name for name in wanted[:ASKED] if self._has(asked._replace(namespace=name))
        )

    def may_create(self, namespace: str, kind: str) -> bool:
        """Return whether the user may create Jobs of a kind in a namespace."""
        known = BY_NAME[kind]
        return self._has(AccessQuery("create", known.group, known.plural, namespace))


class Everybody(Rights):
    """All rights, for whoever reaches loopback: port-forward requires rights of its own."""

    def __init__(self) -> None:
        super().__init__(lambda _: True, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewer:
    requester: Requester
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


class Remembered(Generic[_Value]):
    """A cache bounded in age and size, for any thread."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._answers: OrderedDict[object, tuple[float, _Value]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: object, ask: Callable[[], _Value]) -> _Value:
        """Return the cached answer, else the result of *ask*; exceptions are not cached."""
        with self._lock:
            until, value = self._answers.get(key, (0.0, None))
            if value is not None and until > self._clock():
                return value
        # Not under the lock: one slow answer would keep everybody else's from being given.
        answer = ask()
        with self._lock:
            self._answers[key] = self._clock() + REMEMBERED_SECONDS, answer
            self._answers.move_to_end(key)
            while len(self._answers) > REMEMBERED:
                self._answers.popitem(last=False)
        return answer


class Reviews:
    """Asks the API server who sent a token and what they may do."""

    def __init__(
        self,
        post: Callable[[str, object], Mapping[str, Any]],
        audience: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Ask by *post*; tokens must be meant for *audience*, empty: for the API server itself."""
        self._post, self._audience = post, audience
        self._users: Remembered[Viewer | bool] = Remembered(clock)
        self._allowed: Remembered[bool] = Remembered(clock)
        self._clock = clock
        self._unknown: Counter[str] = Counter()
        """By address, how many tokens of nobody's it has sent since the count began."""
        self._counted_until = 0.0

    def rights_of(self, authorization: str, peer: str) -> Rights:
        """Return the rights of the user who sent a header ``Authorization`` from an address.

        Raises:
            Unknown: it holds no token, or nobody's.
            TooMany: nobody's tokens came from *peer* so often that this one is not asked about.
            Unanswered: the API server did not answer.

        """
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token or len(token) > LONGEST_TOKEN:
            raise Unknown
        # The token itself is stored nowhere.
        key = hashlib.sha256(token.encode()).digest()
        user = self._users.get(key, lambda: self._counted_user(token, peer))
        if not isinstance(user, Viewer):
            raise Unknown
        return Rights(partial(self.allows, user), user.requester)

    def allows(self, user: Viewer, asked: AccessQuery) -> bool:
        """Return whether a user has a right.

        Raises:
            Unanswered: the API server did not answer.

        """
        return self._allowed.get((user, asked), lambda: self._is_allowed(user, asked))

    def _counted_user(self, token: str, peer: str) -> Viewer | bool:
        now = self._clock()
        if now >= self._counted_until:
            self._unknown.clear()
            self._counted_until = now + REMEMBERED_SECONDS
        if self._unknown[peer] >= MOST_UNKNOWN:
            raise TooMany
        user = self._user(token)
        self._unknown[peer] += not isinstance(user, Viewer)
        return user

    def _user(self, token: str) -> Viewer | bool:
        """Return whose token it is; False: nobody's."""
        spec: dict[str, Any] = {"token": token}
        if self._audience:
            spec["audiences"] = [self._audience]
        try:
            status = self._asked(_TOKENS, "authentication.k8s.io/v1", "TokenReview", spec)
            if status.get("authenticated") is not True:
                return False
            # An API server without audiences names none: then the token is its own.
            if self._audience and self._audience not in fields.strings(status, "audiences", ""):
                return False
            return _read_user(fields.mapping(status, "user", ""))
        except FieldError as error:
            raise Unanswered(str(error)) from error

    def _is_allowed(self, user: Viewer, asked: AccessQuery) -> bool:
        spec = {
            "user": user.requester.name,
            "uid": user.uid,
            "groups": sorted(user.requester.groups),
            "extra": {key: list(values) for key, values in user.extra},
            "resourceAttributes": asked._asdict(),
        }
        status = self._asked(_ACCESS, "authorization.k8s.io/v1", "SubjectAccessReview", spec)
        return status.get("allowed") is True and status.get("denied") is not True

    def _asked(self, path: str, version: str, kind: str, spec: object) -> Mapping[str, Any]:
        try:
            answer = self._post(path, {"apiVersion": version, "kind": kind, "spec": spec})
            return fields.mapping(answer, "status", "")
        except (ClusterError, FieldError) as error:
            raise Unanswered(f"{kind}: {error}") from error


def _read_user(source: Mapping[str, Any]) -> Viewer:
    extra = fields.mapping(source, "extra", "user")
    return Viewer(
        requester=read_requester(source, "user"),
        uid=fields.text(source, "uid", "user"),
        extra=tuple((key, fields.strings(extra, key, "user.extra")) for key in sorted(extra)),
    )
