"""Claims of groups of pods: whoever asks, and in whatever order, all hear the same one."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.claims_api import Api, Conflict
from webhook.api.kubernetes_api import ClusterError, Unreachable
from webhook.model.pod_groups import GroupAsked, GroupClaim, key_of, read_claim
from webhook.observer.group_claims import GroupClaims

NOW = 1_790_000_000
CPU = GroupClaim(policy="light-gpu", option="cpu", queue="cpu-lq", unix=NOW)
STAY = GroupClaim(unix=NOW)


class Late(Api):
    """One that others write to between each read and the write that follows."""

    def __init__(self, *others, writes):
        super().__init__(*others)
        self.writes = iter(writes)

    def patch(self, path, body):
        if write := next(self.writes, None):
            self.data[key_of("team", write[0])] = write[1].text
            self.version += 1
        super().patch(path, body)


def pod(group="g", *, option="", namespace="team", **status):
    labels = {"kueue.x-k8s.io/pod-group-name": group, "kueue.x-k8s.io/queue-name": "gpu-lq"}
    if option:
        labels["kueue-fallback.dev/option"] = option
    metadata = {"name": "p", "namespace": namespace, "labels": labels}
    spec = {"containers": [{"name": "main"}]}
    return {"kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def claims(api, now=NOW):
    return GroupClaims(api, "ours", unix=lambda: now, keys=lambda: None)


def agreed(api, claim=CPU, *, group="g", now=NOW, number=7):
    asked = GroupAsked(number=number, namespace="team", group=group, claim=claim)
    answer = claims(api, now).answer(asked)
    assert answer.number == number
    return answer.claim or answer.problem


def test_the_first_to_ask_decides_and_all_others_follow():
    api = Api()

    assert agreed(api, CPU) == CPU
    assert agreed(api, STAY) == CPU
    assert read_claim(api.data["team.g"]) == CPU


def test_that_a_group_stays_as_submitted_is_a_decision_too():
    api = Api()

    assert [agreed(api, STAY), agreed(api, CPU)] == [STAY, STAY]


def test_of_two_that_write_at_once_the_second_follows():
    assert agreed(Late(writes=[("g", STAY)]), CPU) == STAY
    assert agreed(Late(writes=[("other", STAY), ("another", CPU)]), CPU) == CPU


def test_a_configmap_that_others_change_again_and_again_gives_no_answer():
    others = Late(writes=[(f"other-{number}", STAY) for number in range(20)])

    assert "changed 8 times while it was written" in agreed(others, CPU)


@pytest.mark.parametrize("error", [Unreachable("no answer"), ClusterError("refused")])
def test_without_the_api_server_nothing_is_agreed(error):
    api = Api()

    def fail(*_):
        raise error

    api.patch = fail

    assert agreed(api, CPU) == str(error)


def test_a_group_that_has_pods_without_a_claim_stays_where_they_are():
    assert agreed(Api(pod(), pod("other")), CPU) == STAY


def test_pods_of_other_groups_do_not_count():
    assert agreed(Api(pod("other"), pod(namespace="b")), CPU) == CPU


def test_a_forged_option_on_a_pod_tells_of_no_decision():
    assert agreed(Api(pod(option="cpu")), CPU) == STAY


def test_an_old_claim_stays_while_its_group_has_pods():
    old = Api(pod(), data={"team.g": CPU.text})

    assert agreed(old, STAY, now=NOW + 3600) == CPU


def test_a_group_that_is_created_anew_is_decided_anew():
    old = Api(data={"team.g": CPU.text})
    again = GroupClaim(unix=NOW + 3600)

    assert agreed(old, STAY, now=NOW + 59) == CPU
    assert agreed(old, again, now=NOW + 3600) == again
    assert agreed(old, CPU, now=NOW + 3600) == again


def full(count, **more):
    return {f"team.g{number}": CPU.text for number in range(count)} | more


def test_old_claims_without_pods_are_dropped_once_there_are_many():
    few = Api(data=full(31))
    many = Api(pod("g5"), data=full(32, **{"other.g": CPU.text}))

    for api in (few, many):
        agreed(api, GroupClaim(unix=NOW + 3600), now=NOW + 3600)

    assert len(few.data) == 32
    assert many.data.keys() == {"team.g5", "team.g", "other.g"}


def test_a_namespace_with_very_many_groups_gets_no_more_claims():
    api = Api(data=full(512))

    assert agreed(api, CPU) == STAY
    assert agreed(api, STAY, group="g3") == CPU
    assert len(api.data) == 512


def test_claims_of_all_namespaces_are_dropped_where_they_are_too_large_together():
    padded = f"{'x' * 200}"
    api = Api(data={f"ns{number}.{padded}": CPU.text for number in range(2500)})

    assert agreed(api, GroupClaim(unix=NOW + 3600), now=NOW + 3600) == GroupClaim(unix=NOW + 3600)
    assert api.data.keys() == {"team.g"}


@given(
    order=st.permutations([0, 1, 2] * 4),
    proposals=st.tuples(*[st.sampled_from([CPU, STAY])] * 3),
)
def test_however_the_steps_of_servers_interleave_all_hear_one_claim(order, proposals):
    api = Api()
    steps = [stepping(api, proposal) for proposal in proposals]

    heard = [None] * 3
    for number in itertools.chain(order, [0, 1, 2] * 8):
        heard[number] = heard[number] or next(steps[number])

    assert len(set(heard)) == 1
    assert heard[0] in proposals


def stepping(api, proposal):
    """Take one call to the API server at a time; yield the claim in the end."""
    asked = GroupAsked(number=1, namespace="team", group="g", claim=proposal)
    calls = []
    while True:
        try:
            answer = claims(Recorded(api, calls)).answer(asked)
        except _Pause as pause:
            calls.append(result_of(pause.call))
            yield None
        else:
            yield answer.claim


def result_of(call):
    try:
        return call()
    except Conflict as error:
        return error


class Recorded:
    """An API server that has answered so many calls, and pauses before the next one."""

    def __init__(self, api, known):
        self.api = api
        self.known = iter(known)

    def __getattr__(self, verb):
        return lambda *arguments: self.answer(verb, arguments)

    def answer(self, verb, arguments):
        for result in self.known:
            if isinstance(result, ClusterError):
                raise result
            return result
        raise _Pause(lambda: getattr(self.api, verb)(*arguments))


class _Pause(Exception):  # noqa: N818 - no error
    def __init__(self, call):
        super().__init__()
        self.call = call


def test_a_claim_is_read_only_as_it_was_written():
    assert read_claim(CPU.text) == CPU
    for text in (None, "", "[]", "{}", CPU.text.replace("cpu-lq", "x" * 1024), '{"unix":"1"}'):
        assert read_claim(text) is None
    assert read_claim(CPU.text.replace(str(NOW), "true")) is None
