"""The log: one line of JSON a review, none of the Job's spec in it, and never in the way."""

import io
import json
import re
import threading
from pathlib import Path

from hack.waiting import WAIT_SECONDS
from tests import builders
from tests.flow.moves import decision, move, pending, reconsidering
from tests.nasty import all_kinds, asked, of_kind
from tests.reviews import light_job
from tests.servers import Server, paper_snapshot
from webhook.decide import match
from webhook.decide.decision_record import decision_json
from webhook.jobs import KINDS
from webhook.learn import job_class
from webhook.model.job import DECISION
from webhook.serving import decision_log
from webhook.serving.app import teller
from webhook.serving.decision_log import DecisionLog
from webhook.state.snapshot import updated
from webhook.state.workload import SeenWorkload

KIND = KINDS["batch", "v1", "Job"]
REPLICA = {"template": {"spec": {"containers": [{"name": "main"}]}}}
PAGE = Path(__file__).resolve().parents[2] / "docs/log.md"


def line_of(server):
    return decision_log.line(server.considered[-1], 0.0012345)


def test_a_decision_is_told_with_its_numbers_and_without_the_jobs_spec():
    server = Server(paper_snapshot(as_of=98.5))
    job, _ = server.create(light_job(annotations={"secret": "s3cret"}))

    line = line_of(server)
    # It is made once in a review, for the annotation.
    assert line["decision"] is server.considered[0].outcome.recorded
    line["decision"] = decision_json(line["decision"])

    written = decision(job)
    assert line == {
        "msg": "decided",
        "uid": server.considered[0].review.uid,
        "operation": "CREATE",
        "namespace": "team",
        "name": "light",
        "dry_run": False,
        "latency_ms": 1.234,
        "queue": "cpu-lq",
        "option": "cpu",
        "reason": "decided",
        "state_age_s": 1.5,
        "decision": {key: value for key, value in written.items() if key != "original"},
    }
    assert "s3cret" not in json.dumps(line)


def test_a_name_of_any_length_makes_no_line_long():
    server = Server(paper_snapshot())
    server.create(light_job("x" * 500_000), uid="u" * 500_000)
    server.create(light_job(None, generateName="y" * 500_000))

    lengths = [len(json.dumps(decision_log.about(each.review))) for each in server.considered]

    assert max(lengths) < 1_000


def test_a_job_with_thousands_of_names_makes_no_line_long_and_the_line_says_what_it_lacks():
    many = {f"kueue-fallback.dev/x{number}": "y" for number in range(5000)}
    server = Server(paper_snapshot())

    server.create(light_job(labels={**light_job()["metadata"]["labels"], **many}))

    (line,) = server.logged()
    assert len(json.dumps(line)) < 2_000
    assert line["left_out"] == ["job"]
    assert (line["option"], line["decision"]["policy"]) == ("cpu", "light-gpu")


def test_a_line_that_is_long_without_its_job_lacks_its_decision_too_and_texts_are_cut():
    written = io.StringIO()
    log = DecisionLog(written, lambda: None)

    log.put({"msg": "decided", "error": "e" * 5000, "decision": {"x": "x" * 40_000}, "job": "j"})
    log.close()

    line = json.loads(written.getvalue())
    assert line["left_out"] == ["job", "decision"]
    assert (line["msg"], line["error"]) == ("decided", "e" * 1024)


def test_a_skipped_job_and_a_restored_one_are_told_too():
    server = Server(paper_snapshot())
    server.create(light_job(labels={}))
    skipped = line_of(server)
    decided, _ = server.create(light_job())
    server.update(decided, {**light_job(), "metadata": {**decided["metadata"], "labels": {}}})
    restored = line_of(server)

    assert (skipped["msg"], skipped["reason"], skipped["queue"]) == ("skipped", "noPolicy", "")
    assert (restored["msg"], restored["restored"] > 0) == ("restored", True)


def test_a_move_is_told_like_a_decision_and_a_refused_one_with_its_reason():
    server = Server(reconsidering(pending=0))
    stored, _ = server.create(light_job())
    moved, _ = move(server, pending(stored), "cpu")
    told = line_of(server)
    move(server, moved, "cpu")
    refused = line_of(server)

    found = [told[key] for key in ("msg", "operation", "queue", "option", "reason")]
    assert found == ["moved", "UPDATE", "cpu-lq", "cpu", "decided"]
    assert decision_json(told["decision"])["history"] == decision(moved)["history"]
    assert (refused["msg"], refused["reason"]) == ("not moved", "alreadyThere")
    assert "decision" not in refused


def test_the_page_knows_every_key():
    server = Server(paper_snapshot())
    decided, _ = server.create(light_job())
    server.create(light_job(""))
    server.create(light_job(labels={}))
    server.update(decided, {**light_job(), "metadata": {**decided["metadata"], "labels": {}}})
    move(server, decided, "gpu")
    written = server.logged()

    assert {line["msg"] for line in written} == {"decided", "skipped", "restored", "not moved"}
    used = {key for line in written for key in line}
    table = re.findall(r"^\| (`.*?) \|", PAGE.read_text(), re.MULTILINE)
    explained = {key for keys in table for key in re.findall("`(.*?)`", keys)}
    assert explained - used == {"process", "error", "left_out"}
    assert used <= explained


def test_lines_are_passed_on_as_they_are_written_once_their_workloads_are_observed():
    stream, passed_on = io.StringIO(), []
    log = DecisionLog(stream, lambda: None, pass_on=passed_on.extend)
    log.seen(["early"])
    log.put({"msg": "skipped"})
    log.put({"msg": "decided"}, key="early")
    log.put({"msg": "decided"}, key="phantom")
    log.put({"msg": "decided"}, key="late")
    log.close()
    log.seen(["late", "another"])

    written = stream.getvalue().splitlines()
    assert passed_on == [written[1], written[3]]


def test_phantoms_are_passed_on_never_however_many_there_are():
    server = Server(paper_snapshot())
    passed_on = []
    log = DecisionLog(io.StringIO(), lambda: None, pass_on=passed_on.extend)
    server.handler.on_seen = log.seen
    for number in range(20):
        server.create(light_job(f"phantom-{number}"))
    admitted, _ = server.create(light_job("light"))
    server.create(light_job("asked"), dryRun=True)
    for considered in server.considered:
        teller(server.metrics, log)(considered, 0.001)
    log.close()

    decision_id = json.loads(admitted["metadata"]["annotations"][DECISION])["id"]
    server.show(paper_snapshot(), seen=[SeenWorkload(decision_id, "team")])

    assert [json.loads(line)["name"] for line in passed_on] == ["light"]


def test_a_full_log_drops_lines_and_counts_them():
    dropped, stalled = [], Stalled()
    log = DecisionLog(stalled, lambda: dropped.append(1))
    for number in range(decision_log.CAPACITY + 10):
        log.put({"n": number})

    # One line may be in the stalled writer's hands.
    assert len(dropped) in (9, 10)
    stalled.go.set()
    log.close()


def test_a_line_that_cannot_be_written_costs_itself_alone_and_is_named():
    stream, dropped, passed_on = io.StringIO(), [], []
    log = DecisionLog(stream, lambda: dropped.append(1), pass_on=passed_on.extend)

    log.put({"msg": "decided", "uid": "u-1", "decision": {"amount": object()}}, key="u-1")
    log.put({"msg": "decided", "uid": "u-2", "decision": {}}, key="u-2")
    log.close()
    log.seen(["u-2"])

    after, error = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert after["uid"] == "u-2"
    assert (error["level"], error["msg"], error["uid"]) == ("error", "line not written", "u-1")
    assert error["error"].startswith("TypeError at ")
    assert [json.loads(line)["uid"] for line in passed_on] == ["u-2"]
    assert dropped == [1]


def test_a_broken_stream_costs_the_lines_and_not_the_writer():
    dropped, broken = [], Broken()
    log = DecisionLog(broken, lambda: dropped.append(1))
    log.put({"n": 1})
    broken.tried.wait(WAIT_SECONDS)
    broken.works = True
    log.put({"n": 2})
    log.close()

    assert json.loads(broken.getvalue())["n"] == 2
    assert dropped == [1]


def test_whatever_the_stream_and_the_console_raise_ends_no_writer():
    closed, written, dropped = io.StringIO(), io.StringIO(), []
    closed.close()
    log = DecisionLog(closed, lambda: dropped.append(1))
    log.put({"n": 1})
    log.close()
    other = DecisionLog(written, lambda: None, pass_on=lambda _: {}["x"])
    other.seen(["u-1"])
    other.put({"msg": "decided", "decision": {}}, key="u-1")
    other.close()

    assert dropped == [1]
    first, second = map(json.loads, written.getvalue().splitlines())
    assert first["msg"] == "decided"
    assert (second["level"], second["msg"]) == ("error", "lines not passed on")


class Stalled(io.StringIO):
    def __init__(self):
        super().__init__()
        self.go = threading.Event()

    def write(self, text):
        self.go.wait(WAIT_SECONDS)
        return super().write(text)


class Broken(io.StringIO):
    def __init__(self):
        super().__init__()
        self.tried, self.works = threading.Event(), False

    def write(self, text):
        if self.works:
            return super().write(text)
        self.tried.set()
        raise BrokenPipeError


def written(server):
    """The lines that the log writes of all reviews."""
    stream = io.StringIO()
    policies = server.handler.snapshot.fallback.policies
    log = DecisionLog(stream, lambda: None, named=lambda: match.named_by(policies))
    for each in server.considered:
        log.put(decision_log.with_job(decision_log.line(each, 0.001), each))
    log.close()
    return [json.loads(text) for text in stream.getvalue().splitlines()]


def test_a_line_keeps_the_values_by_which_policies_tell_jobs():
    policy = builders.policy(match={"args": [{"flag": "--steps", "atMost": 30}]})
    server = Server(updated(paper_snapshot(), policies=(policy,)))
    job = light_job()
    job["spec"]["template"]["spec"]["containers"][0]["args"] = ["--steps", "20", "--pin=1234"]
    server.create(job)

    (line,) = written(server)

    (kept,) = line["job"]["spec"]["template"]["spec"]["containers"]
    assert line["msg"] == "decided"
    assert kept["args"] == ["--steps=20"]


def test_a_line_carries_the_job_as_it_was_submitted_without_what_may_be_secret():
    server = Server(paper_snapshot())
    job = light_job(annotations={"secret": "s3cret", "kueue-fallback.dev/allow": "cpu"})
    container = job["spec"]["template"]["spec"]["containers"][0]
    container["args"] = ["--token=s3cret"]
    container["env"].append({"name": "TOKEN", "value": "s3cret"})
    server.create(job)

    (line,) = written(server)

    (kept,) = line["job"]["spec"]["template"]["spec"]["containers"]
    assert line["job"]["metadata"] == {
        "namespace": "team",
        "name": "light",
        "labels": job["metadata"]["labels"],
        "annotations": {"kueue-fallback.dev/allow": "cpu"},
    }
    assert kept == {
        "name": "main",
        "image": job_class.of_job(KIND.read(job)).key,
        "resources": container["resources"],
    }
    assert "s3cret" not in json.dumps(line)


def test_jobs_that_nobody_decides_are_carried_too_and_dry_runs_are_not():
    server = Server(paper_snapshot())
    server.create(light_job(labels={"kueue.x-k8s.io/queue-name": "gpu-lq"}))
    server.create(light_job(), dryRun=True)

    skipped, tried = written(server)

    assert skipped["reason"] == "noPolicy"
    assert skipped["job"]["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "gpu-lq"}
    assert "job" not in tried


def test_a_replica_type_of_any_length_makes_no_line_and_no_answer_long():
    job = of_kind("PyTorchJob", {"pytorchReplicaSpecs": {"x" * 100_000: {}, "Master": REPLICA}})
    server = Server(all_kinds())

    answer = server.post(json.dumps(asked(job)))

    (line,) = server.logged()
    assert line["reason"] == "unmodelled"
    assert len(json.dumps(line)) < 5_000
    assert len(answer.data) < 10_000
