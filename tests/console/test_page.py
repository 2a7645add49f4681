"""What the page says, read from its text without a browser."""

from dataclasses import replace
from html.parser import HTMLParser
from math import inf

import pytest

from tests.console import views
from tests.console.waiting import waiting
from tests.state.objects import PENDING, condition, workload
from webhook.console import page_filters, phrases, routes
from webhook.console.job_story import job_story
from webhook.console.page import AT_ONCE, render, render_job
from webhook.console.view import Judged, ShownCluster
from webhook.hindsight.savings_record import FORECASTS, Gained, SavingsRecord
from webhook.state.workload import read_workload

RESERVED = {**condition("QuotaReserved"), "lastTransitionTime": "2026-11-21T06:01:40Z"}
HOSTILE = '</style></script><script>alert(1)</script><img src=x onerror="alert(1)">\'{{7*7}}'


class Reader(HTMLParser):
    """Collects the tags with their attributes, and the text that people see."""

    def __init__(self):
        super().__init__()
        self.tags = []
        self.words = []
        self.unseen = 0

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.unseen += tag in ("style", "script")

    def handle_endtag(self, tag):
        self.unseen -= tag in ("style", "script")

    def handle_data(self, data):
        if not self.unseen:
            self.words.extend(data.split())


def read(view, **asked):
    reader = Reader()
    reader.feed(render(view, "n0nce", page_filters.read_filters(asked)))
    return reader


def text(view, **asked):
    return " ".join(read(view, **asked).words)


def test_an_empty_cluster_says_what_is_not_there_yet():
    said = text(views.EMPTY)

    assert "State ✓ fresh, 1s old" in said
    assert "Off switch ✓ not in use" in said
    assert "Leader controller-0" in said
    assert "Saved known after the first Jobs have ended" in said
    assert "Longest wait not known" in said
    assert "No ClusterQueues in this cluster." in said
    assert "No FallbackPolicies" not in said


def test_what_is_wrong_with_the_machinery_is_said_at_the_top():
    clusters = (ShownCluster(name="worker-1", age=75.0, is_stale=True),)

    said = text(views.view(leader="", clusters=clusters))

    assert said.index("Worker cluster worker-1 is silent.") < said.index("Saved")
    assert said.index("No controller leads.") < said.index("Saved")
    assert "No controller leads" not in text(views.EMPTY)


def test_before_the_first_state_nothing_is_claimed():
    said = text(views.NEVER_SYNCED)

    assert "Nothing is known yet. No state of the cluster has arrived" in said
    assert "State ✕ never seen" in said
    assert "Leader ! none known" in said
    assert "Pending not known Holding quota not known" in said
    assert "No ClusterQueues known yet." in said
    assert "No FallbackPolicies known yet." in said
    assert "stale" not in said.lower()


def test_a_stale_state_is_said_in_the_title_the_alert_and_the_age():
    said = text(views.view(age=47.2, is_stale=True))

    assert said.startswith("Stale · kueue-fallback")
    assert "The state is stale. No news of the cluster has arrived for too long" in said
    assert "State ✕ stale, 47s old" in said


def test_jobs_without_a_review_are_said_at_the_top():
    missed = "3 Jobs created without a review within an hour, the last before 14:27Z"
    judged = {"light-gpu": Judged(is_ready=True, message="", unreviewed=missed)}
    said = text(views.view(policies=(views.policy(),), judged=judged))

    assert f"Jobs are not decided. Policy light-gpu: {missed}. kubectl fallback status" in said
    assert "Jobs are not decided" not in text(views.view(policies=(views.policy(),)))


def test_the_off_switch_is_said_with_what_it_stops():
    said = text(views.view(off="namespaces team-a and team-b"))

    assert said.startswith("Off · kueue-fallback")
    assert "Switched off. The off switch stops namespaces team-a and team-b." in said
    assert "Off switch ✕ in use" in said


def test_a_decision_shows_its_options_and_moves():
    refused = views.option("tpu", pending=None, starts_in=None, runs=None, finishes_in=None)
    refused = replace(refused, rejected="the ClusterQueue is stopped")
    made = views.decision(
        option="cpu",
        options=(
            views.option("gpu", pending=1_200, starts_in=160.0, finishes_in=230.0),
            views.option("cpu"),
            refused,
            replace(views.option("spot", finishes_in=61.0), passed_over="smallGain: 9s sooner"),
        ),
        moves=((views.NOW, "gpu", "done 1m sooner there"),),
    )

    said = text(views.view(decisions=(made,)))

    assert "team-a/ train-1 cpu in cpu-lq moved light-gpu 10s ago" in said
    assert "gpu gpu-lq 1,200 2m40s 1m10s 3m50s done 2m40s later" in said
    assert "▸ cpu (taken) cpu-lq 0 now 1m10s 1m10s —" in said
    assert "tpu tpu-lq — — — — the ClusterQueue is stopped" in said
    assert "spot spot-lq 0 now 1m10s 1m1s smallGain: 9s sooner" in said
    assert "14:13:20 to gpu : done 1m sooner there" in said


@pytest.mark.parametrize(
    ("mode", "option", "said"),
    [
        ("Enforce", "cpu", "cpu in cpu-lq"),
        ("Observe", "cpu", "would be cpu in cpu-lq"),
        ("Advise", "cpu", "would be cpu in cpu-lq"),
        ("Enforce", "", "left alone light-gpu"),
    ],
)
def test_what_was_only_observed_is_said_so(mode, option, said):
    made = views.decision(mode=mode, option=option)

    assert f"train-1 {said}" in text(views.view(decisions=(made,)))


def test_a_queue_that_admits_nobody_says_why_and_comes_first():
    said = text(
        views.view(
            queues=(
                views.queue("busy", pending=40, waits=200.0),
                views.queue("held", trouble="stopped (Hold)"),
            )
        )
    )

    held = "held 0 of 8 gpu a100 0 pending no wait ✕ Admits nobody: stopped (Hold)"
    busy = "busy 0 of 8 gpu a100 40 pending wait 3m20s"
    assert said.index(held) < said.index(busy)


def test_of_a_queue_devices_are_shown_at_once_and_cores_only_without_any():
    cells = (
        views.cell(resource="cpu", nominal=64_000),
        views.cell(nominal=8, reserved=6),
        views.cell(flavor="h100", nominal=4, reserved=6),
    )
    cores = (
        views.cell(resource="memory", nominal=views.GI),
        views.cell(resource="cpu", nominal=8000, reserved=500),
    )
    queues = views.queue("devices", cells=cells), views.queue("none", cells=())

    said = text(views.view(queues=(*queues, views.queue("cores", cells=cores))))

    assert "devices 6 of 8 gpu a100 , 6 of 4 gpu h100 0 pending" in said
    assert "cores 0.5 of 8 cpu a100 0 pending" in said
    assert "none no quota 0 pending" in said


@pytest.mark.parametrize(
    ("values", "parts", "sentence"),
    [
        (
            {"nominal": 8, "reserved": 6},
            [("own", "0.0%", "75.0%"), ("free", "75.0%", "25.0%")],
            "6 of 8 reserved, nothing borrowed; for a newcomer 2 free",
        ),
        (
            {"nominal": 8, "reserved": 10, "available": 6},
            [("own", "0.0%", "50.0%"), ("borrowed", "50.0%", "12.5%"), ("free", "62.5%", "37.5%")],
            "8 of 8 reserved, 2 borrowed; for a newcomer 6 free, 6 by borrowing",
        ),
        (
            # The rest of the quota is lent to others.
            {"nominal": 8, "reserved": 2, "available": 2},
            [("own", "0.0%", "25.0%"), ("free", "25.0%", "25.0%")],
            "2 of 8 reserved, nothing borrowed; for a newcomer 2 free",
        ),
        (
            # Lowered below what was reserved.
            {"nominal": 0, "reserved": 0, "available": -3},
            [],
            "0 of 0 reserved, nothing borrowed; for a newcomer 0 free",
        ),
        (
            {"resource": "cpu", "nominal": 64_000, "reserved": 500},
            [("own", "0.0%", "0.78%"), ("free", "0.78%", "99.22%")],
            "0.5 of 64 reserved, nothing borrowed; for a newcomer 63.5 free",
        ),
    ],
)
def test_a_bar_shows_what_is_reserved_borrowed_and_free(values, parts, sentence):
    tags = read(views.view(queues=(views.queue(cells=(views.cell(**values),)),))).tags

    assert sentence in [attributes.get("aria-label") for _, attributes in tags]
    assert parts == [
        (attributes["class"], attributes["x"], attributes["width"])
        for tag, attributes in tags
        if tag == "rect" and attributes.get("class") in ("own", "borrowed", "free")
        if "x" in attributes
    ]


def test_of_many_queues_the_busiest_are_shown_at_once():
    queues = tuple(views.queue(f"q{number:03}", pending=number) for number in range(AT_ONCE + 6))

    said = text(views.view(queues=queues))

    assert said.index("q006") < said.index("6 more ClusterQueues") < said.index("q005")


def test_who_waits_is_listed_with_since_when_until_when_and_why():
    line = (
        waiting("next", seconds=0.0, low=0.0, high=0.0),
        waiting("train", seconds=120.0, position=4, pending=9, unseen=2),
        replace(waiting("held", seconds=inf), cluster_queue="held-cq"),
        replace(waiting("evicted", seconds=60.0), until=views.NOW),
    )
    line = tuple(
        replace(each, workload=each.workload._replace(created=int(views.NOW) - 90)) for each in line
    )
    held = views.queue("held-cq", trouble="stopped (Hold)")

    said = text(views.view(waiting=line, queues=(held,)))

    assert "team/ next gpu-cq 1 of 3 1m30s ago now it is next" in said
    guess = "how long 2 Workloads ahead of it will run is a guess: no such run was seen"
    assert (
        f"train gpu-cq 4 of 9 1m30s ago in 2m 1m to 3m, a guess 3 Workloads ahead; {guess}" in said
    )
    assert "held held-cq 1 of 3 1m30s ago not foreseen held-cq admits nobody: stopped" in said
    assert "in 1m 30s to 1m30s it is next; backs off after an eviction until 14:13:20" in said


def test_of_many_who_wait_the_first_to_start_are_shown_at_once():
    line = tuple(
        waiting(f"train-{number:03}", seconds=float(number)) for number in range(AT_ONCE + 6)
    )

    said = text(views.view(waiting=line))

    assert said.index("train-009") < said.index("6 more Jobs that start later")
    assert said.index("6 more Jobs that start later") < said.index("train-010")


def hostile_view():
    names = ("identity", "job", "namespace", "policy", "option", "queue", "reason")
    made = views.decision(
        **dict.fromkeys(names, HOSTILE),
        options=(views.option(HOSTILE, rejected=HOSTILE),),
        moves=((views.NOW, HOSTILE, HOSTILE),),
    )
    cells = (views.cell(flavor=HOSTILE, resource=HOSTILE),)
    return views.view(
        off=HOSTILE,
        leader=HOSTILE,
        queues=(views.queue(HOSTILE, cells=cells, cohort=HOSTILE, trouble=HOSTILE),),
        policies=(views.policy(HOSTILE, mode=HOSTILE, options=(HOSTILE,)),),
        judged={HOSTILE: Judged(is_ready=False, message=HOSTILE, unreviewed=HOSTILE)},
        decisions=(made,),
    )


def test_no_name_can_add_to_the_markup():
    found = read(hostile_view(), namespace="<script>", queue=HOSTILE[:40])

    assert [attributes for tag, attributes in found.tags if tag in ("script", "style")] == [
        {"nonce": "n0nce"},
        {"nonce": "n0nce"},
    ]
    assert [tag for tag, _ in found.tags if tag == "img"] == []
    assert [name for _, attributes in found.tags for name in attributes if name[:2] == "on"] == []
    assert "49" not in found.words


def test_a_jobs_own_page_is_led_to_by_its_name_whatever_that_is():
    view = views.large()
    links = [a["href"] for tag, a in read(view).tags if tag == "a"]
    odd = waiting("rayjob/a&b", namespace="team")

    assert links.count("job?namespace=vision&job=train-1") == 1
    assert "job?namespace=team&job=rayjob%2Fa%26b" in [
        a.get("href") for _, a in read(views.view(waiting=(odd,))).tags
    ]


def test_the_page_of_a_job_adds_nothing_to_the_markup():
    view = hostile_view()
    story = job_story(view, HOSTILE, HOSTILE, ())
    reader = Reader()
    reader.feed(render_job(view, story, "n0nce"))

    scripts = [attributes for tag, attributes in reader.tags if tag in ("script", "style")]
    assert scripts == [{"nonce": "n0nce"}, {"nonce": "n0nce"}]
    assert [tag for tag, _ in reader.tags if tag == "img"] == []
    assert [tag for tag, attributes in reader.tags if "style" in attributes] == []


@pytest.mark.parametrize(("conditions", "is_said"), [((PENDING,), True), ((), False)])
def test_the_page_of_a_pending_job_says_how_its_decision_is_taken_back(conditions, is_said):
    view = views.view(decisions=(views.decision(1, namespace="team"),))
    running = workload(job="train-1", conditions=conditions or (RESERVED,), admitted_to="cpu-cq")
    story = job_story(view, "team", "train-1", (read_workload(running),))
    reader = Reader()
    reader.feed(render_job(view, story, "n0nce"))

    said = "kubectl fallback undo train-1 -n team" in " ".join(reader.words)

    assert said == is_said


def test_no_attribute_needs_what_the_policy_forbids():
    found = read(views.large())

    assert [tag for tag, attributes in found.tags if "style" in attributes] == []
    assert {a[name] for _, a in found.tags for name in ("src", "action") if name in a} == {""}


def test_every_id_is_there_once():
    ids = [attributes["id"] for _, attributes in read(views.large()).tags if "id" in attributes]

    assert len(ids) == len(set(ids))


def test_the_header_allows_one_nonce_and_no_other_place():
    policy = routes.headers("n0nce")["Content-Security-Policy"]

    assert policy == (
        "default-src 'none'; style-src 'nonce-n0nce'; script-src 'nonce-n0nce'; img-src data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    )


def test_each_nonce_is_another():
    assert len({routes.new_nonce() for _ in range(100)}) == 100


SUM = {"since": views.NOW - 3600, "jobs": 30, "moved": 10, "gained_seconds": 740.0, "slower": 2}


def test_what_was_saved_says_on_what_it_rests():
    forecast = text(views.view(savings=Gained(**SUM, rests=FORECASTS)))
    replayed = Gained(**SUM, margin_seconds=70.0)
    lost = replace(replayed, gained_seconds=0.0, lost_seconds=5.0)
    record = SavingsRecord(as_of=views.NOW - 60)
    both = text(views.view(savings=replayed, would_save=lost, published=record))

    since = f"a Job, over 30 Jobs since {phrases.day_and_minute(views.NOW - 3600)} ; 10"
    time = phrases.day_and_minute(views.NOW - 60)
    sure = f"by a replay of the journal as of {time}, give or take 1m10s"
    none = "(no controller has replayed the journal yet)"
    hope = "by the decisions' forecasts, compared with each Job's first option"
    assert f"Saved 12m20s 25s {since} moved, 2 slower; {hope} {none}" in forecast
    assert "Would save" not in forecast
    assert f"Saved 12m20s 25s {since} moved, 2 slower; {sure}" in both
    assert f"Would save -5s 0s {since} would be moved, 2 slower; {sure}" in both
    assert none not in both


def test_a_decision_of_which_the_job_alone_tells_is_marked():
    claimed = views.decision(is_unverified=True)

    said = text(views.view(decisions=(claimed,)))

    assert f"Decided at {phrases.day_and_minute(claimed.at)} (only the Job says so) by" in said
