"""What is read, compared and written again, beside others who write it, too."""

import pytest

from tests.controller.objects import Objects
from webhook.api import published
from webhook.api.kubernetes_api import Forbidden, NotServed, Refused

PLACE = "/api/v1/namespaces/ours/configmaps"


def config_map(**data):
    return {"metadata": {"name": "counts"}, "data": data}


def always():
    return True


def added(source):
    """Count one more."""
    count = 0 if source is None else int(source["data"]["count"])
    return config_map(count=str(count + 1))


class Contended(Objects):
    """Somebody else writes between each of our first reads and the write that follows."""

    def __init__(self, times):
        super().__init__()
        self.times = times

    def get(self, path, params=None):
        try:
            return super().get(path, params)
        finally:
            if self.times:
                self.times -= 1
                count = self.held.get(path, config_map(count="0"))["data"]["count"]
                self._keep(path, config_map(count=str(int(count) + 10)))


def counted(server):
    return server.held[f"{PLACE}/counts"]["data"]["count"]


def test_what_is_absent_is_created_and_then_changed_over_the_version_that_was_read():
    server = Objects()

    written = [published.update(server, PLACE, "counts", added, may_write=always) for _ in range(2)]

    assert written == [True, True]
    assert counted(server) == "2"
    assert server.writes == [("post", "counts"), ("patch", "counts")]


@pytest.mark.parametrize("times", [1, 2])
def test_what_another_has_written_meanwhile_is_read_again_and_kept(times):
    server = Contended(times)

    written = published.update(server, PLACE, "counts", added, may_write=always)

    assert written
    assert counted(server) == str(10 * times + 1)


def test_what_changes_at_each_try_is_a_conflict():
    server = Contended(published.MOST_TRIES)

    with pytest.raises(Refused, match="counts has changed at each of 3 tries") as raised:
        published.update(server, PLACE, "counts", added, may_write=always)

    assert raised.value.is_conflict
    assert counted(server) == str(10 * published.MOST_TRIES)


def test_what_is_right_already_is_not_written_nor_anything_by_who_may_not():
    server = Objects()

    same = published.update(server, PLACE, "counts", lambda _: None, may_write=always)
    follows = published.update(server, PLACE, "counts", added, may_write=lambda: False)

    assert (same, follows, server.writes) == (False, False, [])


def test_a_write_over_another_version_is_none_and_changes_nothing():
    server = Objects()
    first = published.write(server, PLACE, config_map(count="1"), version="")

    version = first["metadata"]["resourceVersion"]
    again = published.write(server, PLACE, config_map(count="2"), version="")
    second = published.write(server, PLACE, config_map(count="3"), version=version)
    late = published.write(server, PLACE, config_map(count="4"), version=version)
    server.held.clear()
    gone = published.write(server, PLACE, config_map(count="5"), version=version)

    assert (again, late, gone) == (None, None, None)
    assert second["data"] == {"count": "3"}
    assert server.held == {}


@pytest.mark.parametrize(
    "refusal", [Refused(422, "too long"), Forbidden("x", "no right"), NotServed("namespace ours")]
)
def test_a_write_that_is_refused_for_another_reason_raises(refusal):
    server = Objects()
    server.refusal = refusal

    with pytest.raises(type(refusal)):
        published.update(server, PLACE, "counts", added, may_write=always)


def test_a_status_is_written_over_the_object_that_was_judged():
    server = Objects()
    judged = server.post(PLACE, config_map(count="1"))
    path = f"{PLACE}/counts"
    server.held[f"{path}/status"] = server.held[path]

    first = published.write_status(server, path, judged, {"conditions": []})
    second = published.write_status(server, path, judged, {"conditions": ["other"]})

    assert (first, second) == (True, False)
    assert server.held[f"{path}/status"]["status"] == {"conditions": []}


def test_what_one_alone_writes_is_created_and_written_over():
    server = Objects()

    for count in ("1", "2"):
        published.overwrite(server, PLACE, config_map(count=count))

    assert counted(server) == "2"
    assert server.writes == [("patch", "counts"), ("post", "counts"), ("patch", "counts")]
