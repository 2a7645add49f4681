"""What the page says, read from its text without a browser."""

from dataclasses import replace
from html.parser import HTMLParser
from math import inf

import pytest

from tests.console import views
from tests.console.waiting import waiting
from tests.console.worlds import gains, hour
from webhook.console import page_filters, phrases, routes
from webhook.console.collect import enforced
from webhook.console.first_steps import first_steps
from webhook.console.job_story import job_story
from webhook.console.page import render, render_job
from webhook.console.view import JOURNAL, Savings, ShownCluster

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
    reader.feed(render(view, "n0nce", page_filters.read(asked)))
    return reader


def text(view, **asked):
    return " ".join(read(view, **asked).words)


def test_a_job_that_went_to_a_worker_is_summed_up_once():
    sent = views.queue(pending=2, reserving=7, admitted=6)
    there = views.queue(pending=5, reserving=2, admitted=2, cluster="worker-1")

    said = text(views.view(queues=(sent, there)))

    assert "Pending 2 in 1 ClusterQueue Holding quota 7 6 admitted" in said


def test_queues_of_one_name_are_told_apart_by_their_cluster():
    clusters = (
        ShownCluster(name="worker-1", age=1.0, is_stale=False),
        ShownCluster(name="worker-2", age=75.0, is_stale=True),
        ShownCluster(name="worker-3", age=inf, is_stale=True),
    )
    queues = tuple(views.queue(cluster=name) for name in ("", "worker-1", "worker-2"))

    said = text(views.view(queues=queues, clusters=clusters))
    shown = {a.get("id") for _, a in read(views.view(queues=queues, clusters=clusters)).tags}

    assert "gpu-cq no cohort pending 0" in said
    assert "gpu-cq on worker-1 no cohort pending 0" in said
    assert "gpu-cq on worker-2 no cohort ✕ No news for 1m15s: these figures are" in said
    assert shown >= {"queue-/gpu-cq", "queue-worker-1/gpu-cq", "queue-worker-2/gpu-cq"}
    clusters = "✓ worker-1 fresh , ✕ worker-2 stale, 1m15s old , ✕ worker-3 never seen"
    assert f"Worker clusters {clusters}" in said


def test_an_option_names_its_cluster():
    options = views.option("gpu", cluster="worker-1"), views.option("cpu")

    said = text(views.view(decisions=(views.decision(options=options),)))

    assert "gpu gpu-lq on worker-1 0 now" in said
    assert "(taken) cpu-lq 0 now" in said


def test_an_empty_cluster_says_what_is_not_there_yet():
    said = text(views.EMPTY)

    assert "State ✓ fresh, 1s old" in said
    assert "Off switch ✓ not in use" in said
    assert "Leader controller-0" in said
    assert "Saved known after the first Jobs have ended" in said
    assert "Longest wait not known" in said
    assert "No ClusterQueues in this cluster." in said
    assert "No FallbackPolicies" not in said


@pytest.mark.parametrize(
    ("policies", "first", "last"),
    [
        ((), "kubectl fallback estimate", "kubectl fallback report"),
        ((views.policy(),), "kubectl get fallbackpolicies", "kubectl create -f job.yaml"),
    ],
)
def test_where_nothing_is_decided_yet_three_steps_stand_first(policies, first, last):
    found = read(views.view(policies=policies))
    said = " ".join(found.words)
    steps = said[said.index("What to do next") : said.rindex("ClusterQueues 0")]

    commands = [tag for tag, _ in found.tags if tag == "code"]
    assert len(first_steps(views.view(policies=policies))) == 3
    assert len(commands) >= 3
    assert first in steps
    assert steps.rstrip().endswith(last)
    assert "Latest decisions" not in said


@pytest.mark.parametrize("view", [views.NEVER_SYNCED, views.view(decisions=(views.decision(),))])
def test_no_steps_are_told_before_the_first_state_or_after_the_first_decision(view):
    assert "What to do next" not in text(view)


def test_gain_and_longest_wait_stand_before_all_else_and_machinery_last():
    line = (waiting("late", seconds=60.0), waiting("first", namespace="other", seconds=600.0))
    early = line[1].workload._replace(created=int(views.NOW) - 7_260)
    line = (line[0], replace(line[1], workload=early))

    said = text(views.view(savings=views.SAVED, waiting=line, decisions=(views.decision(),)))

    places = [
        said.index(part)
        for part in ("Saved 4d16h", "Longest wait 2h1m", "Pending 0", "Latest", "State ✓ fresh")
    ]
    assert places == sorted(places)
    assert "Longest wait 2h1m other/first in gpu-cq, starts in 10m" in said
    assert "Longest wait nobody waits" in text(views.view(waiting=()))
    assert "Longest wait not known" in text(views.EMPTY)


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
        ),
        moves=(views.ShownMove(at=views.NOW, option="gpu", reason="done 1m sooner there"),),
    )

    said = text(views.view(decisions=(made,)))

    assert "team-a/ train-1 cpu in cpu-lq moved light-gpu 10s ago" in said
    assert "gpu gpu-lq 1,200 2m40s 1m10s 3m50s done 2m40s later" in said
    assert "▸ cpu (taken) cpu-lq 0 now 1m10s 1m10s —" in said
    assert "tpu tpu-lq — — — — the ClusterQueue is stopped" in said
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

    assert "held no cohort ✕ Admits nobody: stopped (Hold)" in said
    assert "busy no cohort pending 40 wait 3m20s" in said
    assert said.index("held no cohort") < said.index("busy no cohort")


@pytest.mark.parametrize(
    ("ready", "said"),
    [
        (True, "Enforce ✓ ready gpu 1"),
        (None, "Enforce ? not judged yet"),
        (False, "Enforce ✕ not ready no such queue gpu 1 cpu 1 left alone 1"),
    ],
)
def test_a_policy_says_whether_it_is_ready(ready, said):
    message = "no such queue" if ready is False else ""
    view = views.view(policies=(views.policy(ready=ready, message=message),))

    assert f"light-gpu {said}" in text(view)


def test_filters_are_filled_in_and_what_is_left_is_counted():
    view = views.large()

    said = text(view, queue="speech")
    fields = {a["name"]: a["value"] for tag, a in read(view, queue="speech").tags if tag == "input"}

    filled = {"namespace": "", "policy": "", "kind": "", "queue": "speech", "text": ""}
    assert fields == {**filled, "moved": "1"}
    counted = "102 decisions of 500, 9 ClusterQueues of 50, 8 policies of 12, 0 of 96 who wait"
    assert f"Filtered: {counted}." in said
    assert "No Job is pending that the filters match." in said


def hostile_view():
    made = views.decision(
        **dict.fromkeys(("namespace", "policy", "option", "queue", "reason"), HOSTILE),
        options=(views.option(HOSTILE, rejected=HOSTILE),),
        moves=(views.ShownMove(at=views.NOW, option=HOSTILE, reason=HOSTILE),),
    )
    cells = (views.cell(flavor=HOSTILE, resource=HOSTILE),)
    return views.view(
        off=HOSTILE,
        leader=HOSTILE,
        queues=(views.queue(HOSTILE, cells=cells, cohort=HOSTILE, trouble=HOSTILE),),
        policies=(views.policy(HOSTILE, mode=HOSTILE, ready=False, message=HOSTILE),),
        decisions=(replace(made, id=HOSTILE, job=HOSTILE),),
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


def test_hostile_names_are_shown_as_they_are():
    assert text(hostile_view()).count("".join(HOSTILE.split(" ")[:1])) >= 15


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


SUM = {"since": views.NOW - 3600, "jobs": 30, "moved": 10, "saved_seconds": 740.0, "slower": 2}


def test_what_jobs_cost_and_saved_is_shown_where_it_is_known():
    known = {"money": 12.34, "kwh": 4.5, "grams": 1234.0}
    saved = {"money": 0.8, "kwh": -0.2}
    some = Savings(**SUM, rests=JOURNAL, spent=known, saved=saved, late=1, deadlines=3)

    shown = text(views.view(savings=some, currency="EUR"))

    want = "0.8 EUR less, 0.2 kWh more than as submitted ; 1 of 3 deadlines missed"
    assert f"Cost 12.3 EUR, 4.5 kWh, 1.23 kg CO2 {want}" in shown
    assert " Cost " not in text(views.view(savings=Savings(**SUM)))


def test_what_was_saved_says_on_what_it_rests():
    forecast = text(views.view(savings=Savings(**SUM)))
    replayed = Savings(**SUM, rests=JOURNAL, margin_seconds=70.0)
    lost = replace(replayed, saved_seconds=-5.0)
    both = text(views.view(savings=replayed, would_save=lost, savings_as_of=views.NOW - 60))

    since = f"over 30 Jobs since {phrases.day_and_minute(views.NOW - 3600)} ; 10"
    time = phrases.day_and_minute(views.NOW - 60)
    sure = f"by a replay of the journal as of {time}, give or take 1m10s"
    none = "(no controller has replayed the journal yet)"
    hope = "by the decisions' forecasts, compared with each Job's first option"
    assert f"Saved 12m20s {since} moved, 2 slower; {hope} {none}" in forecast
    assert "Would save" not in forecast
    assert f"Saved 12m20s {since} moved, 2 slower; {sure}" in both
    assert f"Would save -5s {since} would be moved, 2 slower; {sure}" in both
    assert none not in both


def test_before_the_first_replay_the_page_says_that_there_was_none():
    said = text(views.EMPTY)

    unknown = "Saved known after the first Jobs have ended"
    assert f"{unknown} (no controller has replayed the journal yet)" in said


def test_a_replayed_decision_says_that_another_replica_knows_what_was_decided():
    replayed = views.decision(mode="Observe", options=(), is_replayed=True)

    said = text(views.view(decisions=(replayed,)))

    assert "would be cpu in cpu-lq" in said
    assert f"Replayed from the journal for {phrases.day_and_minute(replayed.at)}" in said
    assert "another replica made the decision by light-gpu, Observe" in said


def test_a_decision_of_which_the_job_alone_tells_is_marked():
    claimed = views.decision(is_unverified=True)

    said = text(views.view(decisions=(claimed,)))

    assert f"Decided at {phrases.day_and_minute(claimed.at)} (only the Job says so) by" in said


def test_the_page_says_who_gained_what():
    lost = gains("heavy", namespace="other", saved_seconds=-90.0, slower=3, mode="Observe")
    won = gains(device_hours=2.25)
    shown = {"gained": (won, lost), "hours": (hour(),), "decisions": (views.decision(),)}

    said = text(views.view(**shown, savings=enforced((won,))))

    assert "2 slower; 2.2 GPU hours given back" in said

    assert "team light-gpu 30 2 12m20s" in said
    assert "other heavy, would be 30 3 -1m30s" in said
    assert "Known after the first Jobs have ended." in text(
        views.view(decisions=shown["decisions"])
    )
