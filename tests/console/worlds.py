"""A made-up moment for the console: two ClusterQueues of one cohort, a policy, two decisions."""

from tests.builders import arrival, cluster_queue, foreseen, held, policy, snapshot
from webhook.console.collect import ConsoleInput
from webhook.console.view import Judged
from webhook.decide.decision_record import Recorded, RecordedOption
from webhook.hindsight.savings_record import Gained, SavingsRecord, ShownDecision
from webhook.model.decision import Stay
from webhook.model.policy.fallback_policy import Mode
from webhook.model.queues import Held
from webhook.model.words import rfc3339
from webhook.state.snapshot import updated

GPU = "nvidia.com/gpu"
NOW, UNIX = 1000.0, 1_790_000_000.0


def state(**rest):
    """Build a state as of NOW - 2: three of four GPUs reserved, two of them admitted."""
    return snapshot(
        cluster_queue(quotas={"t4": {GPU: "2", "cpu": "4"}}, cohort="all", borrowing="1"),
        cluster_queue("cpu-cq", {"spot": {"cpu": "2500m", "memory": "6Gi"}}, cohort="all"),
        cluster_queue("spare-cq", {"t4": {GPU: "2", "cpu": "0"}}, cohort="all"),
        held={
            "gpu-cq": held({"t4": {GPU: "3", "cpu": "1500m"}}, pending=1, reserving=3),
        },
        competing={"gpu-cq": (arrival("a", count=1), arrival("b", {GPU: "1"}))},
        policies=rest.pop("policies", (policy(),)),
        as_of=NOW - 2,
        **rest,
    )


def counted(found=None, forecasts=None):
    return updated(
        found or state(),
        admitted={"gpu-cq": Held(reserving=2, usage={("t4", GPU): 2, ("t4", "cpu"): 1000})},
        forecasts=FORECASTS if forecasts is None else forecasts,
    )


_FORESEEN = foreseen(
    state(),
    ("gpu-cq", {"t4": {GPU: "3", "cpu": "1500m"}}, 64.0),
    waiting=[(arrival("b", {GPU: "1"}), 10.0)],
    now=NOW - 5,
).forecasts
FORECASTS = {"gpu-cq": _FORESEEN["gpu-cq"]}
"""Of one queue, in which all have started 60 s after NOW: a second after the end of the runs."""


def option(name, finishes_in=None, **rest):
    return RecordedOption(
        name=name,
        queue=f"{name}-lq",
        pending=rest.pop("pending", 0),
        starts_in=rest.pop("starts_in", None),
        runs=rest.pop("runs", None),
        finishes_in=finishes_in,
        rejected=rest.pop("rejected", ""),
    )


def shown(*, identity, policy, option, reason, mode="Enforce", options=(), moves=(), **of_job):
    """Build a decision as the console shows it; *moves*: when, to which option, why."""
    stays = tuple(
        Stay(time=rfc3339(at), option=option, reason=reason) for at, option, reason in moves
    )
    recorded = Recorded(
        id=identity,
        time="",
        policy=policy,
        mode=Mode(mode),
        option=option or None,
        reason=reason,
        from_queue="",
        state_age_seconds=0.0,
        moves=len(stays),
        history=stays,
        options=options,
    )
    return ShownDecision(recorded=recorded, **of_job)


def decision(identity="d-1", **rest):
    given = {
        "at": UNIX - 60,
        "namespace": "team",
        "job": "light-1",
        "policy": "light-gpu",
        "mode": "Enforce",
        "option": "cpu",
        "queue": "cpu-lq",
        "reason": "sent to cpu-lq (cpu)",
        "options": (option("gpu", 200.0), option("cpu", 70.0)),
    }
    return shown(identity=identity, **(given | rest))


MOVED = decision(
    "d-2",
    namespace="other",
    at=UNIX - 90,
    option="gpu",
    queue="gpu-lq",
    options=(option("gpu", 30.0), option("cpu", 70.0)),
    moves=((UNIX - 90, "gpu", "moved to gpu-lq (gpu)"),),
)


def with_workers(**rest):
    """Know of three worker clusters: one that is fresh, one that is silent, one never seen."""
    near = snapshot(
        cluster_queue(quotas={"l4": {GPU: "8"}}),
        held={"gpu-cq": held({"l4": {GPU: "5"}}, pending=4, reserving=5)},
        admitted={"gpu-cq": Held(reserving=3, usage={("l4", GPU): 3})},
        as_of=NOW - 1,
    )
    far = snapshot(cluster_queue(quotas={"l4": {GPU: "2"}}), as_of=NOW - 40)
    return known(workers={"near": near, "far": far, "new": None}, **rest)


def known(**rest):
    given = {
        "now": NOW,
        "unix": UNIX,
        "max_age": 15.0,
        "counted": counted(),
        "decisions": (decision(), MOVED),
        "judged": {"light-gpu": Judged(is_ready=True, message="its options can be taken")},
    }
    return ConsoleInput(**(given | rest))


def gains(policy="light-gpu", mode="Enforce", **rest):
    given = {"namespace": "team", "since": UNIX - 3600, "jobs": 30, "moved": 10, "slower": 2}
    amounts = {"gained_seconds": 800.5, "lost_seconds": 60.0, "margin_seconds": 70.0}
    return Gained(policy=policy, mode=mode, **(given | amounts | rest))


def hour(ago=0.0, policy="light-gpu", **rest):
    given = {"namespace": "team", "mode": "Enforce", "jobs": 10}
    sums = {"gained_seconds": 900.0, "lost_seconds": 60.0}
    return Gained(since=(UNIX - ago) // 3600 * 3600, policy=policy, **(given | sums | rest))


def past(identity="job-9", **rest):
    given = {
        "at": UNIX - 60,
        "namespace": "team",
        "job": "seen-9",
        "policy": "light-gpu",
        "mode": "Observe",
        "option": "cpu",
        "queue": "cpu-lq",
        "reason": "a replay of the journal would send it to cpu-lq (cpu)",
        "is_replayed": True,
    }
    return shown(identity=identity, **(given | rest))


PUBLISHED = SavingsRecord(
    as_of=UNIX - 120,
    decisions=(past(),),
    gained=(gains(), gains("watched", "Observe")),
    hours=(hour(),),
)
