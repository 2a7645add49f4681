"""At which paths reviews are answered: a secret segment is the floor of who may ask."""

import json

import pytest
from werkzeug.test import Client

from tests.reviews import light_job, review
from tests.servers import Server, paper_snapshot
from webhook.server.addresses import read_paths
from webhook.serving.app import create_app

FIRST, SECOND = "first-segment-of-a-path-0", "second-segment-of-a-path-"
REVIEW = json.dumps(review(light_job(), dry_run=True))


@pytest.fixture
def post(tmp_path):
    """Post a review to a path of a server that has these segments; return the status."""

    def posted(path, *segments):
        server = Server(paper_snapshot())
        file = tmp_path / "segments.json"
        file.write_text(json.dumps(segments))
        app = create_app(server.handler, server.metrics, server.lines, path_segments=str(file))
        answer = Client(app).post(f"{path}?timeout=2s", data=REVIEW)
        assert (_counted(server) == 1) == (answer.status_code == 404)
        return answer.status_code, len(server.considered)

    return posted


def _counted(server):
    labels = {"operation": "unknown", "code": "404"}
    return server.metrics.registry.get_sample_value("kueue_fallback_reviews_total", labels)


@pytest.mark.parametrize("path", ["/mutate", "/mutate/", f"/mutate/{FIRST[:-1]}", "/mutate/é"])
def test_without_the_segment_nothing_is_decided(post, path):
    assert post(path, FIRST) == (404, 0)


@pytest.mark.parametrize("path", [f"/mutate/{FIRST}", f"/mutate/{SECOND}"])
def test_each_of_the_segments_is_answered(post, path):
    assert post(path, FIRST, SECOND) == (200, 1)


@pytest.mark.parametrize("path", ["/mutate", f"/mutate/{FIRST}"])
def test_an_empty_segment_is_the_plain_path(post, path):
    assert post(path, FIRST, "") == (200, 1)


def test_another_path_is_unknown_and_not_counted():
    server = Server(paper_snapshot())

    answer = server.client.get("/static/x")

    assert (answer.status_code, answer.data) == (404, b"")
    assert not _counted(server)


def test_without_a_file_the_plain_path_is_the_one():
    assert read_paths("") == (b"/mutate",)


@pytest.mark.parametrize("text", ["[]", "{}", '"x"', '["short"]', '["a/b-that-is-long-enough-"]'])
def test_what_is_no_list_of_segments_is_refused_without_showing_it(tmp_path, text):
    file = tmp_path / "segments.json"
    file.write_text(text)

    with pytest.raises(ValueError, match="must be") as refused:
        read_paths(str(file))

    assert "short" not in str(refused.value).replace("a short", "")
