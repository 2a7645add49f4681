"""Made-up Views: builders with keyword arguments, and one as large as a big cluster makes it."""

import random
from dataclasses import replace
from math import inf

from tests import builders
from tests.console.waiting import waiting
from tests.console.worlds import shown
from webhook.console.view import (
    Cell,
    Judged,
    Queue,
    View,
)
from webhook.decide.decision_record import RecordedOption
from webhook.hindsight.savings_record import FORECASTS, JOURNAL, Gained, SavingsRecord

NOW = 1_790_000_000.0
GI = 1 << 30
SEED = 7


def cell(*, nominal=8, reserved=0, available=None, resource="nvidia.com/gpu", flavor="a100"):
    return Cell(
        flavor=flavor,
        resource=resource,
        nominal=nominal,
        reserved=reserved,
        borrowed=max(0, reserved - nominal),
        available=max(0, nominal - reserved) if available is None else available,
    )


def queue(name="gpu-cq", *, cells=None, **values):
    default = {"cohort": "", "trouble": "", "pending": 0, "reserving": 0, "admitted": 0}
    return Queue(
        **{**default, "waits": None, **values},
        name=name,
        cells=(cell(),) if cells is None else cells,
    )


def option(name="gpu", **values):
    default = {"queue": f"{name}-lq", "pending": 0, "starts_in": 0.0, "runs": 70.0}
    return RecordedOption(**{**default, "finishes_in": 70.0, "rejected": "", **values}, name=name)


def decision(number=1, **values):
    default = {
        "at": NOW - 10 * number,
        "namespace": "team-a",
        "policy": "light-gpu",
        "mode": "Enforce",
        "option": "cpu",
        "queue": "cpu-lq",
        "reason": "sent to cpu-lq (cpu): starts now, done in 1m10s; gpu-lq would be done in 3m24s",
        "options": (option("gpu", pending=12, starts_in=160.0, finishes_in=204.0), option("cpu")),
    }
    named = {"identity": f"id{number}", "job": f"train-{number}"}
    return shown(**{**named, **default, **values})


def policy(name="light-gpu", *, mode="Enforce", options=("gpu", "cpu"), queues=None):
    """Make a policy whose options lead to LocalQueues that are named after them, or as given."""
    made = builders.policy()
    named = zip(options, queues or [f"{option}-lq" for option in options], strict=True)
    first = made.spec.options[0]
    changed = tuple(first.model_copy(update={"name": each, "queue": to}) for each, to in named)
    spec = made.spec.model_copy(update={"mode": mode, "options": changed})
    return made.model_copy(update={"name": name, "spec": spec})


def view(**values):
    """Make the View of a cluster that has been seen a second ago and is empty but for *values*."""
    default = {"at": NOW, "age": 1.0, "is_stale": False, "off": "", "leader": "controller-0"}
    empty = {"queues": (), "policies": (), "decisions": (), "savings": None}
    return View(**{**default, **empty, **values})


EMPTY = view()
SAVED = Gained(since=NOW, jobs=1_284, moved=97, gained_seconds=402_120, slower=11, rests=FORECASTS)
NEVER_SYNCED = view(age=inf, is_stale=True, leader="")


def large(*, now=NOW, newer=0, queues=50):
    """Make *queues* ClusterQueues, 40 pending in each on average, 12 policies, 500 decisions.

    *newer* decisions came after them, and time went on.
    """
    draw = random.Random(SEED)
    policies = tuple(_policy(number) for number in range(12))
    moment = now + 5 * newer
    old = [_decision(number, policies, now, draw) for number in range(500)]
    new = [_decision(-number - 1, policies, moment, draw) for number in range(newer)]
    decisions = tuple([*new[::-1], *old][:500])
    return view(
        at=moment,
        age=0.8,
        queues=tuple(_queue(number, draw) for number in range(queues)),
        policies=policies,
        judged=dict(filter(None, map(_judged, range(12), policies))),
        decisions=decisions,
        leader="kueue-fallback-controller-7c9d8f6b5-x2x7q",
        savings=replace(SAVED, since=now - 21_600),
        would_save=replace(SAVED, since=now - 21_600, rests=JOURNAL, margin_seconds=9_000.0),
        published=SavingsRecord(as_of=now - 150),
        waiting=tuple(
            _since(
                moment - 30 * (96 - number),
                waiting(
                    f"train-{number}",
                    namespace=_TEAMS[number % len(_TEAMS)],
                    seconds=45.0 * number,
                    position=number + 1,
                    pending=96,
                    unseen=number % 4 == 3,
                ),
            )
            for number in range(96)
        ),
    )


def _since(created, line):
    """Let a Workload wait since *created*."""
    return replace(line, workload=line.workload._replace(created=int(created)))


_TEAMS = ("vision", "speech", "robotics", "recsys", "climate", "genomics")


def _queue(number, draw):
    team = _TEAMS[number % len(_TEAMS)]
    gpu = number % 3 != 2
    nominal = draw.choice((4, 8, 16, 32))
    reserved = draw.randint(0, nominal) + (draw.choice((0, 0, 4)) if number % 4 == 0 else 0)
    cells = [_cpu(draw), _memory(draw)]
    if gpu:
        flavor = draw.choice(("a100", "h100", "l40s"))
        free = max(0, nominal - reserved - draw.choice((0, 0, 2)))
        cells = [
            cell(flavor=flavor, nominal=nominal, reserved=reserved, available=free),
            replace(_cpu(draw), flavor=flavor),
            *cells,
        ]
    trouble = {7: "stopped (Hold)", 23: "inactive: ResourceFlavor spot is missing"}.get(number, "")
    return queue(
        f"{team}-{'gpu' if gpu else 'cpu'}-{number:02}",
        cells=tuple(cells),
        cohort=f"{'research' if number % 2 else 'product'}" if number % 5 else "",
        trouble=trouble,
        pending=(96, 40, 12, 2, 50)[number % 5],
        reserving=draw.randint(2, 60),
        admitted=draw.randint(1, 50),
        waits=None if number % 9 == 0 else draw.choice((0.0, 45.0, 380.0, 2_900.0, 15_000.0)),
        local_queues=(f"{team}/{'gpu' if gpu else 'cpu'}-lq",),
    )


def _cpu(draw):
    nominal = draw.choice((64, 128, 512)) * 1000
    reserved = draw.randrange(0, nominal, 500)
    return cell(flavor="on-demand", resource="cpu", nominal=nominal, reserved=reserved)


def _memory(draw):
    nominal = draw.choice((256, 1024)) * GI
    reserved = int(nominal * draw.choice((0.1, 0.5, 1.2)))
    return cell(flavor="on-demand", resource="memory", nominal=nominal, reserved=reserved)


def _policy(number):
    return policy(
        f"{_TEAMS[number % 6]}-{'light' if number < 6 else 'heavy'}",
        mode=("Enforce", "Enforce", "Advise", "Observe")[number % 4],
        options=("gpu", "cpu") if number % 3 else ("h100", "a100", "cpu"),
    )


def _judged(number, judged):
    """Return what the controller found of a policy; of every fifth one it has not judged yet."""
    ready = (True, True, True, False, None)[number % 5]
    message = "spec.options[1].queue: no LocalQueue cpu-lq in any namespace that it matches"
    return ready is not None and (judged.name, Judged(ready, "" if ready else message))


def _decision(number, policies, now, draw):
    by = policies[min(draw.randrange(12), draw.randrange(12))]
    names = [option.name for option in by.spec.options]
    at = now - 21.0 * max(0, number)
    crowded = draw.random() < (0.7 if 120 < number < 300 else 0.35)
    taken = "" if draw.random() < 0.06 else names[-1] if crowded else names[0]
    move = at + 40, taken, "done 3m10s sooner there"
    return decision(
        number,
        at=at,
        namespace=by.name.split("-")[0],
        policy=by.name,
        mode=by.spec.mode,
        option=taken,
        queue=f"{taken or names[0]}-lq",
        reason=f"sent to {taken}-lq ({taken}): starts now, done in 1m10s; {names[0]}-lq would be "
        "done in 3m24s (12 ahead)"
        if taken
        else "left as submitted: the state was too old (21s)",
        options=tuple(_option(name, name == taken, draw) for name in names),
        moves=(move,) if taken and number > 0 and number % 11 == 3 else (),
    )


def _option(name, taken, draw):
    if not taken and draw.random() < 0.2:
        detail = "needs 16 of nvidia.com/gpu where 8 are its most, borrowing included"
        return option(
            name, pending=40, starts_in=None, runs=None, finishes_in=None, rejected=detail
        )
    starts = 0.0 if taken else draw.choice((130.0, 900.0, 5_400.0))
    return option(
        name,
        pending=0 if taken else draw.randint(3, 90),
        starts_in=starts,
        runs=240.0,
        finishes_in=starts + 240,
    )
