import colorsys
import re
from collections import defaultdict
from importlib.resources import files

from tests.console import views
from webhook.console import page
from webhook.console.view import ShownMove


def drawn(*decisions, policies=(), at=views.NOW):
    return page.timeline(views.view(at=at, policies=policies, decisions=decisions))


def lanes(found):
    return [(lane.policy, lane.option, lane.color, lane.total) for lane in found.lanes]


def test_without_decisions_there_is_nothing_to_draw():
    assert drawn() is None


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


def test_what_no_policy_has_any_more_comes_last():
    found = drawn(
        views.decision(1, policy="gone", option="cpu"),
        views.decision(2, option="gpu"),
        policies=(views.policy(decided=(("gpu", 1), ("", 0))),),
    )

    assert lanes(found) == [
        ("light-gpu", "gpu", "series-0", 1),
        ("gone", "cpu", "series-3", 1),
    ]


def test_columns_stand_where_their_time_is():
    # 14:13:20 is now: steps of 5 s, of which the last ends at 14:13:25.
    found = drawn(
        views.decision(1, at=views.NOW),
        views.decision(2, at=views.NOW - 1),
        views.decision(3, at=views.NOW - 60),
    )

    (lane,) = found.lanes
    assert found.step == "5s"
    assert found.peak == 1
    assert [column.x for column in lane.columns] == sorted(column.x for column in lane.columns)
    assert lane.columns[0].x == 0.0
    assert lane.columns[-1].x == round(100 * 12 / 13, 2)
    assert lane.sentence == "at most 1 in 5s, at 14:12:20 UTC"
    ticks = [text for _, text in found.ticks]
    assert (ticks[0], ticks[-1], len(set(ticks))) == ("14:12:20", "14:13:25", 5)


def test_the_highest_column_fills_its_lane_and_the_lowest_is_seen():
    many = [views.decision(number, at=views.NOW) for number in range(100)]

    found = drawn(*many, views.decision(200, at=views.NOW - 60))

    assert [column.height for column in found.lanes[0].columns] == [3, page.HEIGHT]
    assert found.peak == 100


def test_a_move_is_marked_in_the_lane_where_the_job_went():
    moved = views.decision(
        1,
        option="cpu",
        at=views.NOW - 60,
        moves=(ShownMove(at=views.NOW - 30, option="gpu", reason="free again"),),
    )

    found = drawn(moved, policies=(views.policy(),))

    gpu, cpu = found.lanes
    assert (gpu.total, gpu.sentence) == (0, "1 Job moved here")
    assert [round(x) for x in gpu.moves] == [46]
    assert cpu.moves == ()


def test_of_many_policies_the_busiest_are_shown_whole():
    decisions = [
        views.decision(10 * number + part, policy=f"p{number:02}", option=option)
        for number in range(10)
        for part, option in enumerate(("gpu", "cpu", "")[: 3 if number < 8 else 1])
    ]

    found = drawn(*decisions)

    assert {lane.policy for lane in found.lanes} == {"p00", "p01", "p02"}
    assert len(found.lanes) == page.MOST_LANES
    assert found.hidden == "7 policies"


def test_days_are_named_where_there_are_several():
    found = drawn(views.decision(1), views.decision(2, at=views.NOW - 4 * 86_400))

    assert found.step == "4h"
    assert [text for _, text in found.ticks][-1] == "09-21 16:00"


def test_warm_colors_mean_that_a_job_left_its_first_option():
    style = files("webhook.console").joinpath("templates", "style.css").read_text(encoding="utf-8")

    colors = re.findall(r"--series-(\d): #(..)(..)(..)", style)
    hues = defaultdict(list)
    for place, *parts in colors:
        hue, _, _ = colorsys.rgb_to_hsv(*(int(part, 16) / 255 for part in parts))
        hues[place].append(round(360 * hue))

    assert sorted(hues) == ["0", "1", "2", "3"]
    assert all(200 <= hue <= 240 for hue in hues.pop("0"))
    assert all(hue <= 60 or hue >= 320 for of_place in hues.values() for hue in of_place)
