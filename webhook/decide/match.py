"""Tells whether a Job may be decided, and finds the one policy that applies to it, or none.

It must not know how full queues are.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from operator import attrgetter, itemgetter
from typing import Final, TypeAlias

from webhook.decide import warning
from webhook.jobs import BY_NAME, FRAMEWORKS, JobKind
from webhook.kueue.requests import needs
from webhook.learn import job_class
from webhook.model import flags
from webhook.model.decision import Skipped
from webhook.model.fields import EMPTY, FieldError
from webhook.model.flags import Named
from webhook.model.forecasts import JobClass
from webhook.model.job import ELASTIC, MULTIKUEUE_ORIGIN, OURS, Job, PodSet, Requester, of_pod_sets
from webhook.model.kueue_support import is_on
from webhook.model.pods import EVERYTHING
from webhook.model.policy import fallback_policy
from webhook.model.policy.fallback_policy import FallbackPolicy, Match, Only, ValueMatch
from webhook.model.policy.spec import LabelSelector
from webhook.model.queues import KueueConfig
from webhook.model.reasons import Skip
from webhook.model.words import clip
from webhook.state.snapshot import Snapshot, updated

POLICY = OURS + "policy"
OPT_OUT = "none"
"""The value of ``POLICY`` that opts a Job out; no policy may have this name."""
NO_QUEUE = ""
DEFAULT_QUEUE = "default"
_LONGEST_SHOWN: Final = 40
"""Characters of a value that are said to people."""
SYSTEM_NAMESPACES = frozenset({"kube-system", "kube-public", "kube-node-lease", "kueue-system"})

# What Kueue never queues the children of on their own, by API group and kind
# (pkg/controller/jobframework, IsOwnerManagedByKueue). An owner CronJob is not among them.
_MANAGED_OWNERS = frozenset(
    {
        ("ray.io", "RayService"),
        *((kind.group, kind.kind) for kind in BY_NAME.values() if kind.owns_queued),
    }
)
_PREBUILT = "kueue.x-k8s.io/prebuilt-workload-name"
_namespace = attrgetter("namespace")


_Given: TypeAlias = tuple[str, Mapping[str, str | None]]
"""A container's name, and what it is given by name, as ``flags.ContainerValues`` has it."""


def submission(job: Job, snapshot: Snapshot) -> str:
    """Return the LocalQueue of a Job as Kueue's webhook resolves it a moment later; empty: none.

    An empty label counts as none.
    """
    # LocalQueueDefaulting: where a namespace has a LocalQueue "default", Kueue labels Jobs with it.
    has_default = (job.namespace, DEFAULT_QUEUE) in snapshot.setup.local_queues
    return job.queue or (DEFAULT_QUEUE if has_default else NO_QUEUE)


def skip(job: Job, snapshot: Snapshot) -> Skip | None:
    """Return why this Job must not be edited whatever the policies say; None: it may be."""
    # Only the first reason that applies is reported: before the first sync no queue is known, and
    # where the webhook is switched off nothing else matters.
    for reason, applies in (
        (Skip.NOT_SYNCED, snapshot.generation == 0),
        (
            Skip.OFF,
            snapshot.fallback.off is not None and snapshot.fallback.off.covers(job.namespace),
        ),
        (Skip.OWNER_MANAGED, _owner_is_managed(job, snapshot)),
        (Skip.MULTIKUEUE_ORIGIN, MULTIKUEUE_ORIGIN in job.labels),
        (Skip.PREBUILT_WORKLOAD, _PREBUILT in job.labels or _PREBUILT in job.annotations),
        (Skip.ELASTIC_JOB, job.annotations.get(ELASTIC) == "true"),
        (Skip.MANAGED_BY, job.managed_by is not None),
        (Skip.OPTED_OUT, job.annotations.get(POLICY) == OPT_OUT),
        (Skip.KIND_NOT_MANAGED, not _kind_is_managed(job, snapshot)),
        (Skip.NAMESPACE_NOT_MANAGED, not _namespace_is_managed(job, snapshot)),
        # Each pod has a review of its own: a group with pods in two queues would never start.
        (Skip.POD_GROUP, bool(job.group)),
        (Skip.NO_POD_SETS, not (job.pod_sets or job.unmodelled)),
    ):
        if applies:
            return reason
    return None


def matched(
    job: Job,
    snapshot: Snapshot,
    *,
    own_namespace: str = "",
    requester: Requester | None = None,
) -> FallbackPolicy | Skipped:
    """Return the policy by which a new Job is decided, or why there is none.

    The arguments are those of ``policy_for``.
    """
    if reason := skip(job, snapshot):
        return Skipped(skip=reason, job=job)
    try:
        policy = policy_for(job, snapshot, own_namespace=own_namespace, requester=requester)
    except FieldError as error:
        # The Job names a policy that does not match it. Jobs are never refused, so it only says so.
        warnings = warning.sentence(f"left as submitted: {error}")
        return Skipped(skip=Skip.NO_POLICY, warnings=warnings, job=job)
    return policy or Skipped(skip=Skip.NO_POLICY, job=job)


def policy_for(
    job: Job,
    snapshot: Snapshot,
    *,
    own_namespace: str = "",
    requester: Requester | None = None,
) -> FallbackPolicy | None:
    """Return the first policy that matches a Job, or the one that it names; None: none matches.

    *own_namespace* is the webhook's own; a Job in it matches only where a policy selects it.
    *requester* is who creates it; where that is not known, no policy for users or groups matches.

    Raises:
        FieldError: the Job names a policy that does not match it.

    """
    wanted, submitted = job.annotations.get(POLICY), submission(job, snapshot)
    matched: FallbackPolicy | None = None
    for policy in _candidates(job.namespace, snapshot):
        # Where an administrator's policy matches, a team has no say (decision 0050).
        if matched is not None and matched.namespace != policy.namespace:
            break
        if not_for(policy.spec.match, requester):
            continue
        if _mismatch(policy, job, submitted, snapshot, own_namespace):
            continue
        matched = policy
        if wanted in (None, policy.name):
            return policy
    if matched is not None:
        raise FieldError(
            f"metadata.annotations[{POLICY}]", f"no policy {wanted!r} matches this Job"
        )
    return None


def named(name: str, namespace: str, snapshot: Snapshot) -> FallbackPolicy | None:
    """Return the policy of that name, as a decision on a Job of *namespace* gives it; or None."""
    candidates = _candidates(namespace, snapshot)
    return next((policy for policy in candidates if policy.name == name), None)


def _candidates(namespace: str, snapshot: Snapshot) -> Sequence[FallbackPolicy]:
    """Return the policies but those of other namespaces' teams, in order."""
    policies = snapshot.fallback.policies
    # A review does not go through the policies of all teams: they are ordered by namespace.
    if not policies or not policies[-1].namespace:
        return policies
    for_all = bisect_right(policies, "", key=_namespace)
    first = bisect_left(policies, namespace, lo=for_all, key=_namespace)
    end = bisect_right(policies, namespace, lo=for_all, key=_namespace)
    return (*policies[:for_all], *policies[first:end])


def of_another_team(policy: FallbackPolicy, namespace: str) -> str:
    """Return that a policy is another namespace's own; empty: it may be for this one's Jobs."""
    if policy.namespace in ("", namespace):
        return ""
    return f"it is for namespace {policy.namespace}, whose own it is"


def queueing_all(snapshot: Snapshot) -> Snapshot:
    """Return a snapshot in which Kueue queues every kind, where its configuration is not known."""
    if snapshot.setup.kueue.is_read:
        return snapshot
    kueue = snapshot.setup.kueue
    gates = {kind.gate: True for kind in BY_NAME.values() if kind.gate} | dict(kueue.gates)
    return updated(snapshot, kueue=replace(kueue, frameworks=FRAMEWORKS, gates=gates))


def mismatches(
    job: Job,
    snapshot: Snapshot,
    *,
    own_namespace: str = "",
    requester: Requester | None = None,
) -> Mapping[str, str]:
    """Return the policies that do not match a Job, each with the first reason, for people.

    Those of other namespaces' teams are left out.
    """
    submitted = submission(job, snapshot)
    reasons = {
        policy.name: _mismatch(policy, job, submitted, snapshot, own_namespace)
        or not_for(policy.spec.match, requester)
        for policy in _candidates(job.namespace, snapshot)
    }
    return {name: reason for name, reason in reasons.items() if reason}


def named_by(policies: Iterable[FallbackPolicy]) -> Named:
    """Return the flags and variables that policies name, each with the values that they match.

    Records from which Jobs are replayed keep these.
    """
    args: dict[str, set[str]] = {}
    env: dict[str, set[str]] = {}
    for policy in policies:
        for arg in policy.spec.match.args or ():
            args.setdefault(arg.flag, set()).update(_texts(arg))
        for variable in policy.spec.match.env or ():
            env.setdefault(variable.name, set()).update(_texts(variable))
        for flag in policy.spec.job_class_args:
            args.setdefault(flag, set())
        for name in policy.spec.job_class_env:
            env.setdefault(name, set())
    return Named(*({name: frozenset(names[name]) for name in names} for names in (args, env)))


def _texts(wanted: ValueMatch) -> tuple[str, ...]:
    return () if wanted.equals is None else (wanted.equals,)


def class_of(job: Job, policy: FallbackPolicy, snapshot: Snapshot) -> JobClass:
    """Return the class of a Job under a policy: Jobs of one class are expected to run alike.

    Raises:
        FieldError: a quantity cannot be read.

    """
    # A class belongs to one namespace, so what is learned of it tells others nothing, unless the
    # policy shares it (decision 0024).
    shares = job_class.shares_with(policy, job.namespace, snapshot.cluster)
    shared = job_class.shared_home(policy.name) if shares else ""
    return job_class.of_job(
        job,
        label=policy.spec.job_class_label,
        args=policy.spec.job_class_args,
        env=policy.spec.job_class_env,
        shared=shared,
    )


def _mismatch(
    policy: FallbackPolicy,
    job: Job,
    submitted: str,
    snapshot: Snapshot,
    own_namespace: str,
) -> str:
    """Return the first reason why a policy does not match a Job; empty: it matches."""
    match = policy.spec.match
    if other := of_another_kind(match, job):
        return other
    if not _queue_matches(policy, job, submitted, snapshot):
        return _of_another_queue(policy, submitted)
    if not _namespace_matches(match, job.namespace, snapshot, own_namespace):
        return f"it is not for namespace {job.namespace}"
    return unlike(match, job) or _wrong_size(match, job, snapshot)


def _of_another_queue(policy: FallbackPolicy, submitted: str) -> str:
    if submitted:
        return f"it is for Jobs of other queues than {submitted}"
    names = ", ".join(sorted(fallback_policy.queues_of(policy)))
    return f"the Job names no queue{f'; this policy takes Jobs of {names}' if names else ''}"


def not_for(wanted: Match | Only, requester: Requester | None) -> str:
    """Return why the requester is not among the named users and groups; empty: they are."""
    if wanted.users is None and wanted.groups is None:
        return ""
    if requester is None:
        return "it is only for some users, and the Job's creator is unknown"
    if wanted.users is not None and requester.name not in wanted.users:
        # Reasons are stored and logged, and who asks is nobody else's business there.
        return "it is for other users"
    if wanted.groups is not None and requester.groups.isdisjoint(wanted.groups):
        return f"it is for {', '.join(wanted.groups)}, and the user is in none of them"
    return ""


def of_another_priority(wanted: Match | Only, job: Job) -> str:
    """Return that the Job names none of the priority classes that are named; empty: it does."""
    # Of a Job without pod sets only the metadata is known, and they must rule nothing out.
    if wanted.priority_classes is None or not (job.pod_sets or job.named_priority):
        return ""
    if job.named_priority in wanted.priority_classes:
        return ""
    return f"it is for priority class {', '.join(wanted.priority_classes)}"


def of_another_kind(match: Match, job: Job) -> str:
    """Return that a policy is for other kinds of Jobs; empty: it is for this one's."""
    if job.kind in match.kinds:
        return ""
    return f"it is for {', '.join(match.kinds)}, not for a {job.kind}"


def unlike(match: Match, job: Job) -> str:
    """Return the labels, flags or variables of the Job that the policy does not match; or none."""
    if not fallback_policy.selector(match.job_selector, EVERYTHING).matches(job.labels):
        return _missed_label(match.job_selector, job.labels)
    if other := of_another_priority(match, job):
        return other
    # Of a Job without pod sets only the metadata is known, and they must rule nothing out.
    if not job.pod_sets or (match.args is None and match.env is None):
        return ""
    return of_pod_sets(_unmet, job.pod_sets, match)


def _missed_label(wanted: LabelSelector | None, labels: Mapping[str, str]) -> str:
    """Return the first label that is not what a selector asks for, and what it asks for."""
    for key, value in () if wanted is None else wanted.match_labels.items():
        if key not in labels:
            return f"the Job has no label {key}, which must be {value}"
        if labels[key] != value:
            return f"the Job's label {key} is {labels[key]}, not {value}"
    return "the Job's labels are not what jobSelector.matchExpressions asks for"


def _unmet(pod_sets: Sequence[PodSet], match: Match) -> str:
    """Return the first flag or variable that no container has as asked for; empty: all are met."""
    containers = flags.read_pod_sets(pod_sets)
    if containers is None:
        return "the Job's arguments and variables are too long to be read"
    wanted: list[tuple[str, ValueMatch, list[_Given]]] = [
        (arg.flag, arg, [(values.container, values.flags) for values in containers])
        for arg in match.args or ()
    ]
    wanted += [
        (variable.name, variable, [(values.container, values.env) for values in containers])
        for variable in match.env or ()
    ]
    reasons = (_missed(name, value, given) for name, value, given in wanted)
    return next(filter(None, reasons), "")


def _missed(name: str, wanted: ValueMatch, given: Sequence[_Given]) -> str:
    """Return how the nearest container misses what is wanted of a value; empty: one has it."""
    misses = [
        (_distance(wanted, values[name]), container, values[name])
        for container, values in given
        if name in values
    ]
    distance, container, value = min(misses, key=itemgetter(0), default=(inf, "", None))
    if distance == 0:
        return ""
    if not misses:
        return f"no container has {name}"
    if value is None:
        return f"{name} of container {container} has no value that the Job itself says"
    shown = f"{name} of container {container} is {clip(value, _LONGEST_SHOWN)!r}"
    return f"{shown}, not {_words(wanted, is_number=distance < inf)}"


def _distance(wanted: ValueMatch, value: str | None) -> float:
    """Return how far a value is from what is wanted; 0: it is that, infinite: it is no number."""
    if wanted.equals is not None:
        return 0.0 if value == wanted.equals else inf
    amount = None if value is None else flags.number(value)
    if amount is None:
        return inf
    if wanted.at_most is not None and amount > wanted.at_most:
        return float(amount - wanted.at_most)
    if wanted.at_least is not None and amount < wanted.at_least:
        return float(wanted.at_least - amount)
    return 0.0


def _words(wanted: ValueMatch, *, is_number: bool) -> str:
    if wanted.equals is not None:
        return repr(wanted.equals)
    bounds = (("at least", wanted.at_least), ("at most", wanted.at_most))
    asked = " and ".join(f"{words} {bound}" for words, bound in bounds if bound is not None)
    return asked if is_number else f"a number of {asked}"


def _namespace_matches(
    match: Match, namespace: str, snapshot: Snapshot, own_namespace: str
) -> bool:
    # Jobs of the cluster's own namespaces are matched only by a policy that selects them.
    if match.namespace_selector is None:
        return namespace not in SYSTEM_NAMESPACES and namespace != own_namespace
    labels = snapshot.cluster.labels_of(namespace)
    return fallback_policy.selector(match.namespace_selector, EVERYTHING).matches(labels)


def _queue_matches(policy: FallbackPolicy, job: Job, submitted: str, snapshot: Snapshot) -> bool:
    match = policy.spec.match
    if submitted == NO_QUEUE and match.without_queue:
        return True
    # Without a list of its own, a policy matches Jobs of the queues that its options name.
    if match.queues is not None:
        return submitted in match.queues or job.queue in match.queues
    options = policy.spec.options
    if submitted and submitted in [option.queue for option in options]:
        return True
    local_queue = snapshot.setup.local_queues.get((job.namespace, submitted))
    return local_queue is not None and any(
        option.cluster_queue == local_queue.cluster_queue for option in options
    )


def _wrong_size(match: Match, job: Job, snapshot: Snapshot) -> str:
    """Return the resource of which a Job asks for more, or less, than a policy is for; or none."""
    most, least = match.max_requests or EMPTY, match.min_requests or EMPTY
    if not most and not least:
        return ""
    totals: Counter[str] = Counter()
    for pod_set in needs(job, snapshot.cluster, snapshot.setup.kueue):
        totals.update(pod_set.asked)
    for name, limit in fallback_policy.amounts(most).items():
        if totals[name] > limit:
            return f"the Job asks for more than {most[name]} of {name}"
    # Of a Job without pod sets only the metadata is known, and they must rule nothing out.
    for name, limit in fallback_policy.amounts(least).items():
        if job.pod_sets and totals[name] < limit:
            return f"the Job asks for less than {least[name]} of {name}"
    return ""


def _namespace_is_managed(job: Job, snapshot: Snapshot) -> bool:
    return snapshot.setup.kueue.managed_namespaces.matches(
        snapshot.cluster.labels_of(job.namespace)
    )


def _kind_is_managed(job: Job, snapshot: Snapshot) -> bool:
    kind = BY_NAME.get(job.kind)
    # A record of what runs may name a kind that is not known.
    return kind is not None and not integration_off(kind, snapshot.setup.kueue)


def integration_off(kind: JobKind, kueue: KueueConfig) -> str:
    """Return why Kueue queues no Jobs of a kind, in words; empty: it does."""
    if kind.framework not in kueue.frameworks:
        return f"Kueue's integration {kind.framework} is off"
    if kind.gate and not is_on(kind.gate, kueue.gates, kueue.release):
        return f"Kueue's integration {kind.framework} needs its feature gate {kind.gate}"
    return ""


def _owner_is_managed(job: Job, snapshot: Snapshot) -> bool:
    if job.owner is None:
        return False
    group, _, version = job.owner.api_version.rpartition("/")
    # Kueue's externalFrameworks are written Kind.version.group.
    external = f"{job.owner.kind}.{version}.{group}".lower()
    return (group, job.owner.kind) in _MANAGED_OWNERS or external in map(
        str.lower, snapshot.setup.kueue.external_frameworks
    )
