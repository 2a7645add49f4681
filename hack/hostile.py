"""What a tenant tries who may write Jobs and policies of its own in one namespace.

usage: python -m hack.hostile KUBECONFIG [--webhook PORT] [--seconds 60] [--rate 5] [--seed 1]

Each attempt is an object, what is changed in it afterwards, and for how long it stays; or reviews
that are sent to the webhook's port, which everybody reaches by default. The last line printed
counts what became of them.
"""

import argparse
import base64
import collections
import contextlib
import http.client
import json
import random
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from hack import paper
from hack.api import ApiClient, ApiError, Object

OURS: Final = "kueue-fallback.dev/"
OPTED_OUT: Final = {f"{OURS}policy": "none"}
NAMES: Final = paper.Names(namespace="tenant")
KEPT: Final = 100
"""Objects that are there at one time; the oldest go first."""
AT_ONCE: Final = 8
MOST_ANNOTATIONS: Final = 262_144
"""Characters of all annotations of an object."""
NOT_FOUND_OR_CHANGED: Final = frozenset({404, 409})
EVIL: Final = "docker.io/evil:latest"
PEER: Final = "127.0.0.2"
"""The tenant's address; the API server has another."""
WAITS_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One object, and the merge patches of it that follow."""

    job: Object
    """Mostly a Job."""
    changes: Sequence[Object] = ()
    means: str = ""
    """What must not come of it: the image that no Job may end up with."""
    reviews: int = 0
    """So many reviews of it are sent to the webhook at once, and nothing is created."""


@dataclass(slots=True, kw_only=True)
class Tenant:
    """What one knows who plans attempts: a seed, and the mark of a Job of others' class."""

    random: random.Random
    number: int = 0
    mark: str = "0123456789abcdef ~0123456789abcdef 1"
    decision: str = "{}"
    """A decision of this installation, on a Job with the image that no Job may end up with."""
    outcomes: collections.Counter[str] = field(default_factory=collections.Counter)


def _job(
    tenant: Tenant,
    *,
    annotations: Mapping[str, str] | None = None,
    marks: Mapping[str, str] | None = None,
    args: Sequence[str] = (),
    queue: str = "gpu-lq",
    runs: float = 0.0,
) -> Object:
    """Make a Job like those of others; one that *runs*, for seconds, asks for nearly nothing."""
    name = f"bad-{tenant.number}"
    made = paper.light_job(name, NAMES)
    made["metadata"]["annotations"] = dict(annotations or {})
    labels = {paper.QUEUE_LABEL: "spare-lq" if runs else queue, "workload-type": _kind(tenant)}
    made["metadata"]["labels"] |= labels
    template = made["spec"]["template"]
    run = {"sim.example.com/cpu-run": f"{runs * 1000:.0f}ms"} if runs else {}
    template["metadata"]["annotations"] = {**run, **(marks or {})}
    container = template["spec"]["containers"][0]
    if args:
        container["args"] = list(args)
    if runs:
        container["resources"] = {"requests": {"cpu": "10m"}}
    return made


def _kind(tenant: Tenant) -> str:
    return tenant.random.choice(["light-gpu", "forecast", "heavy-gpu"])


def _long_number(tenant: Tenant) -> Attempt:
    digits = tenant.random.choice([10, 11, 400, 4_301, 5_000])
    mark = {f"{OURS}class": f"x ~y {'9' * digits}"}
    return Attempt(job=_job(tenant, annotations=OPTED_OUT, marks=mark))


def _long_number_of_a_run(tenant: Tenant) -> Attempt:
    digits = tenant.random.choice([10, 11, 20])
    mark = {
        f"{OURS}class": f"x ~y {'9' * digits}",
        f"{OURS}decided-by": "forecast",
    }
    made = _job(tenant, annotations=OPTED_OUT, marks=mark, runs=1.0)
    made["spec"]["template"]["metadata"]["labels"] = {f"{OURS}option": "spare"}
    return Attempt(job=made)


def _nasty_arguments(tenant: Tenant) -> Attempt:
    unit = tenant.random.choice(
        ["a-", "0-", "deadbeef-", "1.", "1:", "9e+", "a" * 7 + "-", "\u0130"]
    )
    size = tenant.random.choice([4_000, 32_000, 200_000])
    given = tenant.random.choice([OPTED_OUT, {}])
    return Attempt(job=_job(tenant, annotations=given, args=[(unit * size)[:size]]))


def _forged_decision(tenant: Tenant, **rest: Any) -> dict[str, Any]:
    option = {"name": "gpu", "queue": "gpu-lq", "clusterQueue": "gpu-cq", "pending": 3}
    return {
        "version": 1,
        "id": f"abc-{tenant.random.getrandbits(32):08x}",
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "policy": "forecast",
        "mode": "Enforce",
        "option": "gpu",
        "reason": "x",
        "from": {"queue": "gpu-lq"},
        "original": {},
        "options": [option],
        **rest,
    }


def _forged_places(tenant: Tenant) -> Attempt:
    """Let what another admission enforced be undone."""
    places = {
        "/spec/template/spec/nodeSelector/tenant": None,
        "/spec/template/spec/containers/main/image": EVIL,
    }
    made = _job(tenant, annotations=_decided(_forged_decision(tenant, original=places)))
    made["spec"]["template"]["spec"]["nodeSelector"] = {"tenant": "b"}
    again = {"metadata": {"annotations": {f"{OURS}move-to": "none"}}}
    return Attempt(job=made, means=EVIL, changes=[again])


def _decided(decision: Mapping[str, Any]) -> dict[str, str]:
    return {f"{OURS}decision": json.dumps(decision)}


def _odd_decision(tenant: Tenant) -> Attempt:
    text = json.dumps(_forged_decision(tenant, original={"/spec/template/spec/affinity": "@"}))
    depth = tenant.random.choice([100, 700, 5_000])
    odd = tenant.random.choice(
        [
            ('"pending": 3', f'"startsIn": 1{"0" * 400}'),
            ('"pending": 3', f'"startsIn": {"9" * 5_000}'),
            ('"pending": 3', '"startsIn": 1e999, "finishesIn": NaN'),
            ('"policy": "forecast"', '"policy": "\\ud800"'),
            ('"reason": "x"', '"reason": "\\u001b[2J\\ud800"'),
            ('"@"', '{"a":' * depth + "1" + "}" * depth),
            ('"version": 1', '"version": 1, "moves": 99999999999, "history": [{}]'),
            ('"time": "', '"time": "2200-01-01T00:00:00Z", "was": "'),
        ]
    )
    annotations = {f"{OURS}decision": text.replace(*odd), f"{OURS}undone": "x"}
    if tenant.random.choice([True, False]):
        annotations |= OPTED_OUT
    many = [{"metadata": {"annotations": {f"{OURS}x": f"{n}"}}} for n in range(5)]
    return Attempt(job=_job(tenant, annotations=annotations), changes=many)


def _forged_runs(tenant: Tenant) -> Attempt:
    """Let a class that is not ours fail, or run for a second, under an option of others."""
    marks = {
        f"{OURS}class": tenant.mark,
        f"{OURS}decided-by": "forecast",
        f"{OURS}decision-id": f"abc-{tenant.random.getrandbits(32):08x}",
    }
    if tenant.random.choice([True, True, False]):
        marks["sim.example.com/cpu-fails"] = "true"
    made = _job(tenant, annotations=OPTED_OUT, marks=marks, runs=1.0)
    made["spec"]["template"]["metadata"]["labels"] = {f"{OURS}option": "spare"}
    return Attempt(job=made)


def _forged_guest(tenant: Tenant) -> Attempt:
    marks = {f"{OURS}decided-by": "forecast"}
    made = _job(tenant, annotations=OPTED_OUT, marks=marks, runs=3600.0)
    made["spec"]["template"]["metadata"]["labels"] = {f"{OURS}option": "spare"}
    return Attempt(job=made)


def _big_marks(tenant: Tenant) -> Attempt:
    key = tenant.random.choice(["decision-id", "class", "decided-by", "env.x"])
    noise = _noise(tenant, 240_000)
    return Attempt(job=_job(tenant, annotations=OPTED_OUT, marks={f"{OURS}{key}": noise}))


def _big_annotations(tenant: Tenant) -> Attempt:
    key = tenant.random.choice(["x", "decision", "undone", "reason", "undone-from"])
    made = _job(
        tenant, annotations={f"{OURS}{key}": _noise(tenant, 240_000), **OPTED_OUT}, runs=1.0
    )
    return Attempt(job=made)


def _almost_too_large(tenant: Tenant) -> Attempt:
    """Leave no room for what a decision writes; without a decision it would be taken."""
    if tenant.random.choice([True, False]):
        return Attempt(job=_job(tenant, annotations={"note": "x" * (MOST_ANNOTATIONS - 300)}))
    made = _job(tenant)
    container = made["spec"]["template"]["spec"]["containers"][0]
    container["env"][0]["value"] = "x" * (MOST_ANNOTATIONS + 800)
    return Attempt(job=made)


def _refused_by_the_api_server(tenant: Tenant) -> Attempt:
    made = _job(tenant)
    made["spec"]["template"]["spec"]["restartPolicy"] = "Always"
    return Attempt(job=made)


def _odd_wishes(tenant: Tenant) -> Attempt:
    key = tenant.random.choice(["deadline", "max-wait", "max-slowdown", "run-time", "allow"])
    value = tenant.random.choice(["9" * 5_000, "-1s", "0001-01-01T00:00:00Z", "1e999", "\x1b[2J"])
    queue = tenant.random.choice(["gpu-lq", "no-such-queue", "gpu-lp"])
    return Attempt(job=_job(tenant, annotations={f"{OURS}{key}": value}, queue=queue))


def _moved_about(tenant: Tenant) -> Attempt:
    targets = ["cpu", "spare", "none", "no-such-option", "x" * 1_000]
    tenant.random.shuffle(targets)
    moves = [{"metadata": {"annotations": {f"{OURS}move-to": each}}} for each in targets]
    return Attempt(job=_job(tenant), changes=[*moves, {"spec": {"suspend": False}}])


def _odd_kueue(tenant: Tenant) -> Attempt:
    made = _job(tenant)
    key, value = tenant.random.choice(
        [
            ("max-exec-time-seconds", "2147483647"),
            ("priority-class", "no-such-class"),
            ("prebuilt-workload-name", "none"),
            ("multikueue-origin", "x"),
            ("elastic-job", "true"),
        ]
    )
    made["metadata"]["labels"][f"kueue.x-k8s.io/{key}"] = value
    container = made["spec"]["template"]["spec"]["containers"][0]
    container["resources"]["requests"]["memory"] = tenant.random.choice(["1n", "8Ei", "1e18", "0"])
    return Attempt(job=made)


def _copied_decision(tenant: Tenant) -> Attempt:
    """Let a signed decision be undone on a Job whose image another admission has put in place."""
    annotations = {**OPTED_OUT, f"{OURS}decision": tenant.decision}
    made = _job(tenant, annotations=annotations, queue="cpu-lq")
    made["metadata"]["labels"][f"{OURS}option"] = "cpu"
    made["spec"]["template"]["spec"]["containers"][0]["image"] = "mirror.example.com/diffusion"
    return Attempt(job=made, means=EVIL)


def _many_keys(tenant: Tenant) -> Attempt:
    keys = {f"{OURS}key-{number}": "x" * 16 for number in range(5_000)}
    return Attempt(job=_job(tenant, annotations=keys))


def _short_runs(tenant: Tenant) -> Attempt:
    """Let a class be learned to take a second."""
    return Attempt(job=_job(tenant, runs=1.0))


def _holds(tenant: Tenant) -> Attempt:
    wishes = {f"{OURS}hold": "6h", f"{OURS}run-time": "10m"}
    return Attempt(job=_job(tenant, annotations=wishes))


def _large_team_policy(tenant: Tenant) -> Attempt:
    """Say that Jobs take a second, in a policy that is as large as may be."""
    options = [
        {"name": "gpu", "queue": "gpu-lq"},
        {"name": "cpu", "queue": "cpu-lq", "slowdown": 2, "adaptation": {"accelerator": "Remove"}},
    ]
    far = [f"{'v' * 55}-{number}" for number in range(32)]
    expressions = [
        {"key": f"example.com/{number}", "operator": "NotIn", "values": far} for number in range(16)
    ]
    return Attempt(
        job={
            "apiVersion": "kueue-fallback.dev/v1alpha1",
            "kind": "TeamFallbackPolicy",
            "metadata": {
                "name": f"bad-{tenant.number}",
                "namespace": NAMES.namespace,
                "annotations": {"note": _noise(tenant, 240_000)},
            },
            "spec": {
                "mode": "Enforce",
                "match": {"jobSelector": {"matchExpressions": expressions}},
                "options": options,
                "strategy": {"type": "FinishTime", "finishTime": {"runTime": "1s"}},
            },
        }
    )


def _reviews_of_a_peer(tenant: Tenant) -> Attempt:
    """Keep the webhook busy, as whoever reaches its port can."""
    made = _job(tenant)
    pods = made["spec"]["template"]["spec"]
    variables = [{"name": f"V{number}", "value": "x"} for number in range(100)]
    (first,) = pods["containers"]
    pods["containers"] = [
        {**first, "name": f"main-{number}", "env": variables} for number in range(50)
    ]
    return Attempt(job=made, reviews=16)


def _long_names(tenant: Tenant) -> Attempt:
    made = _job(tenant)
    made["metadata"]["name"] = "n" * 500_000
    return Attempt(job=made, reviews=4)


ATTEMPTS: Final[Sequence[Callable[[Tenant], Attempt]]] = (
    _long_number,
    _long_number_of_a_run,
    _nasty_arguments,
    _forged_places,
    _odd_decision,
    _forged_runs,
    _forged_guest,
    _big_marks,
    _big_annotations,
    _almost_too_large,
    _refused_by_the_api_server,
    _odd_wishes,
    _moved_about,
    _odd_kueue,
    _copied_decision,
    _many_keys,
    _short_runs,
    _holds,
    _large_team_policy,
    _reviews_of_a_peer,
    _long_names,
)


def _noise(tenant: Tenant, size: int) -> str:
    """Make text that no compression makes small."""
    return base64.b64encode(tenant.random.randbytes(size * 3 // 4)).decode()


def planned(tenant: Tenant) -> tuple[str, Attempt]:
    """Return the next attempt and its name; all take turns."""
    plan = ATTEMPTS[tenant.number % len(ATTEMPTS)]
    tenant.number += 1
    return plan.__name__.strip("_").replace("_", " "), plan(tenant)


class Attacker:
    """Carries attempts out; what the API server refuses is no fault of anyone."""

    def __init__(self, client: ApiClient, tenant: Tenant, *, webhook: int) -> None:
        """*webhook*: its port; 0: it is not reached."""
        self._client = client
        self._tenant = tenant
        self._webhook = webhook
        self._kept: collections.deque[Object] = collections.deque()

    def learn(self) -> None:
        """Find out the class of others' Jobs, from a copy of one, and get a decision to copy."""
        made = paper.light_job("copy", NAMES)
        made["metadata"]["labels"] |= {"workload-type": "forecast", paper.QUEUE_LABEL: "own-lq"}
        marks = self._client.create(made, dry_run=True)["spec"]["template"]["metadata"]
        self._tenant.mark = marks["annotations"].get(f"{OURS}class", self._tenant.mark)
        made = paper.light_job(f"decided-{time.time_ns()}", NAMES)
        made["spec"]["template"]["spec"]["containers"][0]["image"] = EVIL
        decided = self._client.create(made)["metadata"].get("annotations", {})
        self._tenant.decision = decided.get(f"{OURS}decision", self._tenant.decision)

    def attempt(self, name: str, attempt: Attempt) -> None:
        outcomes = self._tenant.outcomes
        if attempt.reviews:
            with ThreadPoolExecutor(max_workers=attempt.reviews) as pool:
                for status in pool.map(self._review, [attempt.job] * attempt.reviews):
                    outcomes[f"{name}: {status}"] += 1
            return
        try:
            created = self._client.create(attempt.job)
        except ApiError as error:
            outcomes[f"{name}: {error.status}"] += 1
            if self._would_be_taken(error, attempt.job):
                outcomes["refused because of a decision"] += 1
            return
        outcomes[f"{name}: created"] += 1
        self._kept.append(attempt.job)
        found = [created, *filter(None, (self._change(attempt, each) for each in attempt.changes))]
        if attempt.means and any(attempt.means in json.dumps(_pods(each)) for each in found):
            outcomes["carried out by a forged decision"] += 1
        while len(self._kept) > KEPT:
            oldest = self._kept.popleft()
            name = oldest["metadata"]["name"]
            self._client.delete(
                oldest["apiVersion"], oldest["kind"], name, namespace=NAMES.namespace
            )

    def _review(self, job: Object) -> str:
        """Ask the webhook itself; return the status of its answer, or why there is none."""
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(
            "127.0.0.1",
            self._webhook,
            context=tls,
            timeout=WAITS_SECONDS,
            source_address=(PEER, 0),
        )
        with contextlib.closing(connection):
            try:
                connection.request("POST", "/mutate?timeout=2s", json.dumps(review_of(job)))
                return str(connection.getresponse().status)
            except OSError as error:
                return type(error).__name__

    def _change(self, attempt: Attempt, change: Object) -> Object | None:
        name = attempt.job["metadata"]["name"]
        try:
            return self._client.patch("batch/v1", "Job", name, change, namespace=NAMES.namespace)
        except ApiError:
            return None

    def _would_be_taken(self, error: ApiError, job: Object) -> bool:
        if "Too long" not in error.message:
            return False
        annotations = {**job["metadata"]["annotations"], **OPTED_OUT}
        opted_out = {**job, "metadata": {**job["metadata"], "annotations": annotations}}
        try:
            self._client.create(opted_out, dry_run=True)
        except ApiError:
            return False
        return True


def review_of(job: Object) -> Object:
    kind = {"group": "batch", "version": "v1", "kind": "Job"}
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "tenant",
            "kind": kind,
            "resource": {"group": "batch", "version": "v1", "resource": "jobs"},
            "name": job["metadata"]["name"],
            "namespace": NAMES.namespace,
            "operation": "CREATE",
            "userInfo": {"username": "tenant"},
            "object": job,
            "dryRun": True,
        },
    }


def _pods(job: Object) -> Object:
    spec: Object = job["spec"]["template"]["spec"]
    return spec


def _client(kubeconfig: Path) -> ApiClient:
    found = yaml.safe_load(kubeconfig.read_text())
    cluster = found["clusters"][0]["cluster"]
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    tls = ssl.create_default_context(cadata=authority)
    port = urlsplit(cluster["server"]).port or 443
    return ApiClient(port, tls=tls, token=found["users"][0]["user"]["token"])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m hack.hostile")
    parser.add_argument("kubeconfig", type=Path)
    parser.add_argument("--webhook", type=int, default=0, help="port; 0: nothing is sent there")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=5.0, help="objects a second")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    tenant = Tenant(random=random.Random(given.seed))  # noqa: S311 - to be replayed
    attacker = Attacker(_client(given.kubeconfig), tenant, webhook=given.webhook)
    attacker.learn()
    began = time.monotonic()
    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        for number in range(round(given.seconds * given.rate)):
            time.sleep(max(0.0, began + number / given.rate - time.monotonic()))
            pool.submit(attacker.attempt, *planned(tenant))
    print(json.dumps(tenant.outcomes))


if __name__ == "__main__":
    main()
