from tests.console import views
from webhook.console import page


def drawn(*decisions, policies=(), at=views.NOW):
    return page.timeline(views.view(at=at, policies=policies, decisions=decisions))


def lanes(found):
    return [(lane.policy, lane.option, lane.color, lane.total) for lane in found.lanes]


def test_each_option_of_a_policy_has_a_lane_in_its_order_and_color():
    found = drawn(
        views.decision(1, option="cpu"),
        views.decision(2, option=""),
        views.decision(3, option="gpu"),
        views.decision(4, option="cpu"),
        policies=(views.policy(decided=(("gpu", 1), ("a100", 0), ("cpu", 2), ("", 1))),),
    )

    assert lanes(found) == [
        ("light-gpu", "gpu", "series-0", 1),
        ("light-gpu", "cpu", "series-2", 2),
        ("light-gpu", "", "series-none", 1),
    ]
