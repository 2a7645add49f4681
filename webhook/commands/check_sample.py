"""A sample Job as each option of a policy would make it, tried on the cluster by a dry run.

The Job opts out of the webhook. A pod is tried, too: LimitRanges, quotas and pod security apply
only when pods are created, so a dry run of the Job alone does not show what they refuse.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rich.text import Text

from webhook.admission import patch
from webhook.api.kubernetes_api import Forbidden, NotServed, Refused
from webhook.api.resources import kueue_path
from webhook.commands import terminal
from webhook.commands.kubectl import Scope, connected, listed
from webhook.commands.manifest import ManifestObject, read_one_job, read_policies
from webhook.commands.terminal import Line
from webhook.decide import match, options
from webhook.decide.match import OPT_OUT, POLICY
from webhook.flow import carry_out, moving
from webhook.flow.decided_job import read_decided_job
from webhook.jobs import batch, kind_of
from webhook.model.decision import Assessment
from webhook.model.fields import FieldError
from webhook.model.job import PLAIN
from webhook.model.queues import MULTIKUEUE
from webhook.model.reasons import Obstacle
from webhook.model.words import harmless, nearest

if TYPE_CHECKING:
    from webhook.api.client import Client
    from webhook.model.policy.fallback_policy import FallbackPolicy, Option

_DRY_RUN = {"dryRun": "All"}
_OF_A_RUN = (
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "generation",
    "managedFields",
    "selfLink",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The result of a dry run of the sample in one option."""

    policy: str
    option: str
    queue: str
    refusals: tuple[str, ...] = ()
    """The API server's texts; or ours, if it was not asked."""
    notes: tuple[str, ...] = ()

    @property
    def is_accepted(self) -> bool:
        return not self.refusals

    @property
    def lines(self) -> list[Line]:
        verdict = terminal.tinted("accepted" if self.is_accepted else "refused")
        head = f"{self.policy}: option {self.option} ({self.queue or '-'}): "
        refused = f": {'; '.join(self.refusals)}" if self.refusals else ""
        return [Text.assemble(head, verdict, refused), *(f"  {note}" for note in self.notes)]

    def as_json(self) -> Mapping[str, Any]:
        return {
            "policy": self.policy,
            "option": self.option,
            "queue": self.queue,
            "accepted": self.is_accepted,
            "refusals": list(self.refusals),
            "notes": list(self.notes),
        }


def tried_on_cluster(paths: Sequence[str], sample: str, scope: Scope) -> Sequence[Trial]:
    """Try the sample in every option of all policies of the files.

    Raises:
        FieldError: the sample cannot be read; names file and line.

    """
    job = read_one_job(sample, scope.here)
    own = job.value["metadata"]["namespace"]
    policies = [policy for path in paths for policy in read_policies(path, own)]
    with connected(scope.access) as client:
        trials = _Trials(client, as_submitted(job.value), job)
        return [trial for policy in policies for trial in trials.of_policy(policy)]


def as_submitted(source: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a Job without what a cluster has added to it, under a name that is generated.

    Its decision is undone, if it carries one that can be read.
    """
    job = nameless(without_run(source))
    try:
        kind = kind_of(job)
        return read_decided_job(job, kind).recovered().submitted_source
    except FieldError:
        # Reading the Job reports what is wrong.
        return job


def without_run(source: Mapping[str, Any]) -> dict[str, Any]:
    """Copy a Job without what the API server and the Job controller have added to it."""
    metadata = {key: text for key, text in source["metadata"].items() if key not in _OF_A_RUN}
    job: dict[str, Any] = copy.deepcopy({**source, "metadata": metadata})
    job.pop("status", None)
    if job.get("kind", PLAIN) == PLAIN:
        _take_off(job.get("spec") or {})
    return job


def nameless(source: Mapping[str, Any]) -> dict[str, Any]:
    """Have the API server generate the name, since a Job of the same name may exist."""
    metadata = dict(source["metadata"])
    name = metadata.pop("name", None)
    metadata.setdefault("generateName", f"{name or 'sample'}-")
    return {**source, "metadata": metadata}


def _take_off(spec: dict[str, Any]) -> None:
    """Remove the selector and labels by which the Job controller finds its pods."""
    if spec.get("manualSelector"):
        return
    spec.pop("selector", None)
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    for name in batch.GENERATED:
        labels.pop(name, None)


class _Trials:
    def __init__(self, client: Client, source: Mapping[str, Any], manifest: ManifestObject) -> None:
        self._client = client
        self._source = source
        self._namespace = source["metadata"]["namespace"]
        self._queues = _local_queues(client, self._namespace)
        self._is_older = _is_older(client)
        try:
            self._kind = kind_of(source)
            self._job = self._kind.read(source)
        except FieldError as error:
            raise manifest.wrong(error.path, error.message) from error

    def of_policy(self, policy: FallbackPolicy) -> Iterator[Trial]:
        # The sample is tried all the same: the cluster's answer is worth having.
        wanted = policy.spec.match
        unlike = (
            match.of_another_team(policy, self._namespace)
            or match.of_another_kind(wanted, self._job)
            or match.unlike(wanted, self._job)
        )
        notes = (harmless(f"no Job for this policy: {unlike}"),) if unlike else ()
        for option in policy.spec.options:
            queue, missing = self._queue(option)
            trial = Trial(policy=policy.name, option=option.name, queue=queue, notes=notes)
            if missing:
                yield replace(trial, refusals=(missing,))
                continue
            try:
                variant = self._variant(policy, option, queue)
            except (FieldError, patch.PatchError) as error:
                yield replace(trial, refusals=(str(error),))
                continue
            yield self._tried(trial, variant)

    def _queue(self, option: Option) -> tuple[str, str]:
        """Return the option's LocalQueue, and what is wrong with it; empty: nothing."""
        known, where = self._queues, f"of namespace {self._namespace}"
        if known is None:
            cannot = f"which LocalQueue {where} points to it cannot be seen"
            return option.queue, "" if option.queue else cannot
        if option.queue:
            hint = nearest(option.queue, known)
            missing = f"LocalQueue {option.queue} not found in namespace {self._namespace}{hint}"
            return option.queue, "" if option.queue in known else missing
        matching = [name for name, target in known.items() if target == option.cluster_queue]
        if len(matching) == 1:
            return matching[0], ""
        number = "several LocalQueues" if matching else "no LocalQueue"
        return "", f"{number} {where} for ClusterQueue {option.cluster_queue}"

    def _variant(self, policy: FallbackPolicy, option: Option, queue: str) -> Mapping[str, Any]:
        """Return the very object that admission would make, opted out of admission."""
        taken = Assessment(option=option.name, queue=queue)
        adapted = options.adapted(self._job, option, policy)
        under = carry_out.under(
            adapted, policy, taken, decision_id="sample", class_text="sample sample 0"
        )
        opted_out = replace(under, annotations={**under.annotations, POLICY: OPT_OUT})
        edits = self._kind.edits(self._job, opted_out)
        return patch.patched(self._source, edits, self._kind.allowed)

    def _tried(self, trial: Trial, variant: Mapping[str, Any]) -> Trial:
        try:
            created, warnings = self._client.ask(
                "POST", self._kind.path(self._namespace), variant, _DRY_RUN
            )
        except Forbidden as error:
            if error.is_lack_of_rights:
                raise
            return replace(trial, refusals=(str(error),))
        except Refused as error:
            return replace(trial, refusals=(str(error),))
        notes = [*trial.notes, *(f"Warning: {text}" for text in warnings)]
        if obstacle := self._kept_from_undo(variant, created):
            notes.append(f"undo needs --recreate: {obstacle.meaning}")
        return self._tried_pods(replace(trial, notes=tuple(notes)), variant)

    def _kept_from_undo(
        self, variant: Mapping[str, Any], created: Mapping[str, Any]
    ) -> Obstacle | None:
        """Return why this Job could not be undone in place; None: it could.

        *created* is what became of *variant*.
        """
        if not self._kind.is_movable:
            return Obstacle.CREATION_ONLY
        if self._kind.read(created).managed_by == MULTIKUEUE:
            return Obstacle.MANAGED_BY
        raw = self._kind.read(variant)
        if not self._job.queue:
            return Obstacle.NO_QUEUE
        restored = moving.put_back(raw, self._job, self._kind)
        if isinstance(restored, Obstacle):
            return restored
        changes = any("resources" in edit.path for edit in self._kind.edits(raw, restored))
        return Obstacle.OLDER_KUBERNETES if changes and self._is_older else None

    def _tried_pods(self, trial: Trial, variant: Mapping[str, Any]) -> Trial:
        """Try a pod of each pod set; the first that is refused, or not tried, ends it."""
        for pod_set in self._kind.read(variant).pod_sets:
            if not pod_set.path:
                continue
            template: Any = patch.value_at(variant, pod_set.path)
            tried = self._tried_pod(trial, template, variant["metadata"]["generateName"])
            if tried is not trial:
                return tried
        return trial

    def _tried_pod(self, trial: Trial, template: Mapping[str, Any], name: str) -> Trial:
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                **{
                    key: (template.get("metadata") or {}).get(key)
                    for key in ("labels", "annotations")
                },
                "generateName": name,
                "namespace": self._namespace,
            },
            # Controllers set it where it is not there; a pod of a Job may not be restarted.
            "spec": {"restartPolicy": "Never", **template["spec"]},
        }
        try:
            self._client.post(f"/api/v1/namespaces/{self._namespace}/pods", body, _DRY_RUN)
        except Forbidden as error:
            if not error.is_lack_of_rights:
                return replace(trial, refusals=(f"its pods: {error}",))
            return replace(trial, notes=(*trial.notes, f"its pods were not tried: {error}"))
        except Refused as error:
            return replace(trial, refusals=(f"its pods: {error}",))
        return trial


def _is_older(client: Client) -> bool:
    from webhook.api.client import lets_resources_change

    try:
        return not lets_resources_change(client.get("/version"))
    except (Forbidden, NotServed):
        return False


def _local_queues(client: Client, namespace: str) -> Mapping[str, str] | None:
    """Return each LocalQueue with its ClusterQueue; None: the user may not list them."""
    try:
        path = kueue_path(client.kueue_version(), f"namespaces/{namespace}/localqueues")
        return {
            local_queue["metadata"]["name"]: str(local_queue["spec"].get("clusterQueue", ""))
            for local_queue in listed(client, path)
        }
    except NotServed:
        return {}
    except Forbidden:
        return None
