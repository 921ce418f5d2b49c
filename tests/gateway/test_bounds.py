"""
The numbers that others rely on: the vendor's clients, people, and whoever proves a gateway dead.

What each of them does is tested where it is done, with small numbers; here stands that the numbers are the promised
ones.
"""

import time
from datetime import timedelta

import pytest

from controller.clock import SystemClock
from controller.gateway.fence_calls import LEASE_TIMEOUT
from controller.gateway.settings import GatewaySettings, TimeSettings
from controller.gateway.stream_settings import StreamSettings
from controller.plan.fence_tenure import RULES, TenureRules
from controller.plan.fence_upstream import BUFFER_BYTES, BUFFER_TIME, UNCONFIRMED_BYTES

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)

VENDORS_PATIENCE = 45 * SECOND
"""After so long without a message the JavaScript SDK closes. Source: sprites-api.md 3.7 (2026-09)."""


def test_a_socket_is_pinged_every_fifteen_seconds_and_speaks_up_well_before_a_vendors_client_gives_up() -> None:
    streams = StreamSettings()

    assert streams.ping_every == 15 * SECOND
    assert streams.silence_limit == 20 * SECOND
    assert 2 * streams.silence_limit < VENDORS_PATIENCE
    # Two pings may be lost.
    assert streams.pong_limit == 3 * streams.ping_every


def test_a_lease_lasts_six_seconds_is_renewed_each_two_and_no_call_for_it_is_waited_for_longer_than_the_next() -> None:
    assert TenureRules(lease=6 * SECOND, renew=2 * SECOND, timeout=1.5 * SECOND, margin=SECOND) == RULES
    assert LEASE_TIMEOUT == RULES.timeout < RULES.renew


def test_a_lease_is_measured_by_a_clock_that_runs_on_in_suspend(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = {time.CLOCK_BOOTTIME: 1000.5, time.CLOCK_MONOTONIC: 7.0}
    monkeypatch.setattr(time, "clock_gettime", moments.__getitem__)

    assert SystemClock().elapsed() == timedelta(seconds=1000.5)


def test_what_is_typed_before_the_lock_and_what_is_on_its_way_have_the_promised_bounds() -> None:
    assert (BUFFER_BYTES, BUFFER_TIME) == (64 * 1024, 20 * SECOND)
    assert UNCONFIRMED_BYTES == 64 * 1024
    # Longer than somebody waits who takes over from a dead gateway.
    assert BUFFER_TIME > 15 * SECOND


def test_who_may_is_asked_again_in_time_and_a_drain_ends_before_a_pod_is_killed() -> None:
    times = TimeSettings()

    assert (times.review_again, times.fresh_token, times.verdict_kept) == (30 * SECOND, MINUTE, 10 * SECOND)
    assert times.drain + times.farewell < 30 * SECOND
    assert StreamSettings().revival_limit == 30 * SECOND
    assert GatewaySettings().head_bytes == 32 * 1024
