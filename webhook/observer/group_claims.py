"""Claims: the one decision of each group of pods, in a ConfigMap that all replicas write to.

A claim is added only to the version of the ConfigMap that was just read, so that of several servers
that ask at once one wins, and all hear the same. A claim that is not young any more is replaced
once its group has no pods, as then it is of an earlier group of that name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NoReturn

from webhook.api.kubernetes_api import ClusterError, KubernetesApi
from webhook.api.watch import list_pages
from webhook.flow import decided_job
from webhook.jobs.pod import POD, group_of
from webhook.model import fields
from webhook.model.fields import FieldError
from webhook.model.job import DECIDED_BY
from webhook.model.pod_groups import GroupAgreed, GroupAsked, GroupClaim, key_of, read_claim
from webhook.model.signatures import SigningKeys

CONFIG_MAP: Final = "kueue-fallback-pod-groups"
OLD_SECONDS: Final = 60
"""From then on a claim counts only if its group has pods. Servers follow a claim that they know
without asking for half as long, so that their clocks may differ by the other half."""
_ATTEMPTS: Final = 8
_PRUNED_FROM: Final = 32
"""Claims in a namespace, from which on old ones without pods are dropped."""
_MOST: Final = 512
"""Claims in a namespace; beyond that its groups stay as submitted."""
_LARGEST: Final = 600_000
"""Characters of all claims: a ConfigMap takes one MiB."""
_OF_KUEUE: Final = "kueue.x-k8s.io/managed=true"
"""What Kueue's webhook puts on each pod that it queues."""


class GroupClaims:
    """Answers the questions of one server, one after the other, from a thread of its own."""

    def __init__(
        self,
        client: KubernetesApi,
        namespace: str,
        *,
        unix: Callable[[], float],
        keys: Callable[[], SigningKeys | None],
    ) -> None:
        self._client = client
        self._path = f"/api/v1/namespaces/{namespace}/configmaps/{CONFIG_MAP}"
        self._unix = unix
        self._keys = keys

    def run(self, get: Callable[[], GroupAsked], tell: Callable[[GroupAgreed], None]) -> NoReturn:
        """Answer each question that *get* returns."""
        while True:
            tell(self.answer(get()))

    def answer(self, asked: GroupAsked) -> GroupAgreed:
        """Return the claim that counts, made now if there was none."""
        try:
            return GroupAgreed(number=asked.number, claim=self._agreed(asked))
        except (ClusterError, FieldError) as error:
            return GroupAgreed(number=asked.number, problem=str(error))

    def _agreed(self, asked: GroupAsked) -> GroupClaim:
        # First the pods, then the claim: a claim that is seen after a pod of its group was, is
        # not replaced any more.
        of_pods = self._of_pods(asked)
        key = key_of(asked.namespace, asked.group)
        for _ in range(_ATTEMPTS):
            version, claims = self._read()
            found = read_claim(claims.get(key))
            if found is not None and (of_pods is not None or not self._is_old(found)):
                return found
            claim = of_pods or asked.claim
            if asked.dry_run:
                return claim
            gone = self._without_pods(asked.namespace, claims)
            if self._is_full(asked.namespace, claims, gone) and found is None:
                return GroupClaim(unix=claim.unix)
            if self._write(version, {**dict.fromkeys(gone), key: claim.text}):
                return claim
        raise FieldError("", f"{CONFIG_MAP} changed {_ATTEMPTS} times while it was written")

    def _read(self) -> tuple[str, Mapping[str, Any]]:
        source = self._client.get(self._path)
        metadata = fields.mapping(source, "metadata", "")
        version = fields.text(metadata, "resourceVersion", "metadata")
        return version, fields.mapping(source, "data", "")

    def _write(self, version: str, data: Mapping[str, str | None]) -> bool:
        """Change this version of the ConfigMap; False: there is a newer one."""
        try:
            self._client.patch(self._path, {"metadata": {"resourceVersion": version}, "data": data})
        except ClusterError as error:
            if error.is_conflict:
                return False
            raise
        return True

    def _of_pods(self, asked: GroupAsked) -> GroupClaim | None:
        """Return the claim that the pods of a group tell of; None: it has none.

        They came without a claim before groups were decided, or their claim was deleted.
        """
        pods = [pod for pod in self._pods(asked.namespace) if group_of(pod) == asked.group]
        if not pods:
            return None
        sent = {self._sent(pod) for pod in pods}
        policy, option, queue_name = next(iter(sent)) if len(sent) == 1 else ("", "", "")
        return GroupClaim(policy=policy, option=option, queue=queue_name, unix=int(self._unix()))

    def _pods(self, namespace: str) -> Iterator[Mapping[str, Any]]:
        """List the pods in a namespace, or in all (empty), that Kueue queues.

        Those that have failed count, too: pods that replace them belong to the same Workload.
        """
        params = {"labelSelector": _OF_KUEUE}
        for page in list_pages(self._client, POD.path(namespace), params):
            yield from (pod for pod, _ in fields.objects(page, "items", ""))

    def _sent(self, pod: Mapping[str, Any]) -> tuple[str, str, str]:
        """Return the policy, option and queue of a pod's decision; empty: it has none of ours."""
        try:
            job = decided_job.read_stored(pod, POD, self._keys())
        except FieldError:
            return "", "", ""
        recorded = job.believed
        if recorded is None or recorded.option is None or not _is_marked(pod):
            return "", "", ""
        return recorded.policy, recorded.option, job.current.queue

    def _is_old(self, claim: GroupClaim) -> bool:
        return self._unix() - claim.unix > OLD_SECONDS

    def _without_pods(self, namespace: str, claims: Mapping[str, Any]) -> Iterable[str]:
        """Return old claims whose groups have no pods, if there are many claims."""
        if len(_in(namespace, claims)) >= _PRUNED_FROM:
            candidates, where = _in(namespace, claims), namespace
        elif _size(claims) > _LARGEST:
            candidates, where = list(claims), ""
        else:
            return ()
        there = {key_of(_namespace_of(pod), group_of(pod)) for pod in self._pods(where)}
        return [key for key in candidates if key not in there and self._is_over(claims[key])]

    def _is_over(self, text: object) -> bool:
        claim = read_claim(text)
        return claim is None or self._is_old(claim)

    def _is_full(self, namespace: str, claims: Mapping[str, Any], gone: Iterable[str]) -> bool:
        left = {key: text for key, text in claims.items() if key not in set(gone)}
        return len(_in(namespace, left)) >= _MOST or _size(left) > _LARGEST


def _is_marked(pod: Mapping[str, Any]) -> bool:
    """Tell whether a pod's decision was carried out: then it says by which policy."""
    metadata = fields.mapping(pod, "metadata", "")
    return DECIDED_BY in fields.texts(metadata, "annotations", "metadata")


def _in(namespace: str, claims: Mapping[str, Any]) -> list[str]:
    return [key for key in claims if key.startswith(f"{namespace}.")]


def _size(claims: Mapping[str, Any]) -> int:
    return sum(len(key) + len(str(text)) for key, text in claims.items())


def _namespace_of(pod: Mapping[str, Any]) -> str:
    return fields.text(fields.mapping(pod, "metadata", ""), "namespace", "metadata")
