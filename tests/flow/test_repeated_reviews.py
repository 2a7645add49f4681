"""Reinvocations of Jobs that carry no mark of ours."""

from webhook.flow.ledger import REPEATED_SECONDS, RepeatedReviews


def test_each_noted_job_echoes_once():
    echoes = RepeatedReviews()
    echoes.expect("ns/train-", 10.0)
    echoes.expect("ns/train-", 10.1)

    found = [echoes.is_repeated("ns/train-", 10.2) for _ in range(3)]

    assert found == [True, True, False]


def test_another_name_is_no_echo():
    echoes = RepeatedReviews()
    echoes.expect("ns/train-", 10.0)

    assert not echoes.is_repeated("ns/other-", 10.0)


def test_an_echo_that_comes_too_late_is_a_job_of_its_own():
    echoes = RepeatedReviews()
    echoes.expect("ns/train-", 10.0)

    assert not echoes.is_repeated("ns/train-", 10.0 + REPEATED_SECONDS + 0.1)


def test_an_echoed_job_leaves_the_next_one_expected():
    echoes = RepeatedReviews()
    echoes.expect("ns/a", 0.0)
    echoes.is_repeated("ns/a", 0.1)
    echoes.expect("ns/a", REPEATED_SECONDS)

    found = echoes.is_repeated("ns/a", REPEATED_SECONDS + 0.1)

    assert found
