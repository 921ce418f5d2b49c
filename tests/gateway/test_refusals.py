"""The closed table of refusals."""

from datetime import timedelta

import pytest

from controller.gateway.refusals import Refusal, RefusalCause, count_seconds, render_headers, render_refusal


@pytest.mark.parametrize("cause", RefusalCause)
def test_every_cause_has_a_status_a_reason_and_a_body_that_clients_of_kubernetes_read(cause: RefusalCause) -> None:
    refusal = Refusal(cause, "A sentence.")
    body = render_refusal(refusal)

    assert 400 <= refusal.code <= 599
    assert (body["kind"], body["apiVersion"], body["status"]) == ("Status", "v1", "Failure")
    assert (body["code"], body["reason"], body["message"]) == (refusal.code, refusal.reason, "A sentence.")
    assert body["details"]["causes"] == [{"reason": cause.value, "message": "A sentence."}]


def test_the_order_of_the_causes_is_the_order_of_the_checks() -> None:
    codes = [Refusal(cause, "").code for cause in RefusalCause if cause is not RefusalCause.BUG]

    order = "429 429 400 404 405 403 403 401 401 403 404 410 410 410 409 409 409 409 429 429 503 503 503"
    assert codes == [int(code) for code in order.split()]


def test_a_wait_is_told_in_whole_seconds_and_never_too_short() -> None:
    refusal = Refusal(RefusalCause.BUSY, "Busy.", retry_after=timedelta(seconds=1.2))

    assert render_headers(refusal) == {"Retry-After": "2"}
    assert render_refusal(refusal)["details"]["retryAfterSeconds"] == 2
    assert [count_seconds(timedelta(seconds=wait)) for wait in (0, 0.001, 1, 59.5)] == [1, 1, 1, 60]
