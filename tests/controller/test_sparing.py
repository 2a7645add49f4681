from webhook.controller.job_events import RateLimit


def test_so_many_pass_in_any_minute():
    now = [100.0]
    sparing = RateLimit(2, clock=lambda: now[0])

    passed = []
    for now[0] in (100.0, 130.0, 131.0, 159.9, 160.0, 161.0, 190.0):
        passed.append(sparing.lets_pass())

    assert passed == [True, True, False, False, True, False, True]
