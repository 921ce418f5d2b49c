"""What the pump decides and what it tells kopf; how it behaves with a real API server is in tests/cluster."""

import asyncio
import logging
from datetime import timedelta
from typing import Any, cast

import kopf
import pytest
from kopf._cogs.clients.errors import APIForbiddenError, APIServerError

from controller.api.names import FINALIZER
from controller.engine.registry import Gone, Snapshot
from controller.handlers import pump as pump_module
from controller.handlers.handover import Handover
from controller.handlers.pump import KOPF_FINALIZER, Pump, PumpSettings, build_settings, judge_login_pause
from controller.kube.credentials import ConnectionFacts
from tests.engine.clocks import NOON, HandClock
from tests.engine.test_registry import raw_terminal

SECOND = timedelta(seconds=1)


def unreachable() -> ConnectionFacts:
    return ConnectionFacts(server="http://127.0.0.1:9")


def new_pump(settings: PumpSettings | None = None, clock: HandClock | None = None) -> Pump:
    return Pump(settings or PumpSettings(), unreachable, lambda _: None, clock or HandClock())


@pytest.mark.parametrize(
    ("repeats", "seconds"), [(0, 0), (1, 0), (2, 1), (3, 2), (4, 4), (6, 16), (7, 30), (8, 30), (1_000_000, 30)]
)
def test_the_first_repeat_of_a_login_comes_at_once_and_the_others_ever_later(repeats: int, seconds: int) -> None:
    assert judge_login_pause(repeats, 30 * SECOND) == seconds * SECOND


def test_logins_far_apart_are_no_repeats() -> None:
    clock = HandClock()
    pump = new_pump(clock=clock)
    pauses = []
    for wait in (0, 0, 0, 0, 70, 0):
        clock.passed += wait * SECOND
        pauses.append(pump._count_login().total_seconds())
    assert pauses == [0, 0, 1, 2, 0, 0]
    assert pump.logins == 6


@pytest.mark.parametrize(
    ("told", "chosen"),
    [
        (None, timedelta(minutes=10)),
        (timedelta(hours=1), timedelta(minutes=10)),
        (timedelta(minutes=5), timedelta(minutes=5)),
        (timedelta(seconds=-5), timedelta(seconds=30)),
    ],
)
def test_a_login_ends_with_its_token_or_at_our_limit_and_never_at_once(
    told: timedelta | None, chosen: timedelta
) -> None:
    assert new_pump()._judge_expiration(None if told is None else NOON + told) == NOON + chosen


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({"namespaces": ("team-*",)}, "namespaces must be names, not patterns."),
        ({"namespaces": ("",)}, "namespaces must be names, not patterns."),
        ({"namespaces": ("a", "a")}, "namespaces must not repeat one."),
        ({"chunk_size": 0}, "chunk_size must be at least 1."),
        ({"idle_timeout": timedelta(0)}, "idle_timeout must be longer than zero."),
        (
            {"connect_timeout": timedelta(0), "stop_timeout": timedelta(0)},
            "connect_timeout must be longer than zero. stop_timeout must be longer than zero.",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused_in_sentences(arguments: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValueError) as refused:
        PumpSettings(**arguments)
    assert str(refused.value) == fault


@pytest.mark.parametrize(("namespaces", "connections"), [((), 2), (("a",), 2), (("a", "b", "c"), 4)])
def test_there_is_a_connection_for_each_watch_and_one_for_a_list(namespaces: tuple[str, ...], connections: int) -> None:
    assert PumpSettings(namespaces=namespaces).connections_max == connections


def test_kopf_is_told_to_watch_and_nothing_else() -> None:
    told = build_settings(PumpSettings())
    assert (
        told.posting.enabled,
        told.peering.standalone,
        told.scanning.disabled,
        told.watching.chunk_size,
        told.watching.connect_timeout,
        told.watching.reconnect_backoff,
        told.networking.request_timeout,
        told.queueing.idle_timeout,
        told.queueing.worker_limit,
        told.process.ultimate_exiting_timeout,
    ) == (False, True, True, 500, 10, 1, 30, 0.1, None, None)
    assert max(told.queueing.error_delays) == 60
    assert told.persistence.finalizer == KOPF_FINALIZER != FINALIZER


def test_kopf_finds_no_difference_between_any_two_objects() -> None:
    baseline = build_settings(PumpSettings()).persistence.diffbase_storage
    body = kopf.Body(cast("kopf.RawBody", raw_terminal()))
    assert baseline.fetch(body=body) == baseline.build(body=body) == {}


def test_whatever_kopf_would_store_on_an_object_is_refused() -> None:
    kept = build_settings(PumpSettings()).persistence
    body, patch = kopf.Body(cast("kopf.RawBody", raw_terminal())), kopf.Patch()
    with pytest.raises(AssertionError):
        kept.diffbase_storage.store(body=body, patch=patch, essence={})
    with pytest.raises(AssertionError):
        kept.progress_storage.touch(body=body, patch=patch, value="now")
    assert not patch


@pytest.mark.parametrize("kind", [None, "ADDED", "MODIFIED"])
def test_an_object_that_exists_becomes_a_snapshot(kind: str | None) -> None:
    event = cast("kopf.RawEvent", {"type": kind, "object": raw_terminal()})
    assert pump_module._word(event) == Snapshot.of(raw_terminal())


def test_an_object_that_was_deleted_becomes_the_word_that_it_is_gone() -> None:
    event = cast("kopf.RawEvent", {"type": "DELETED", "object": raw_terminal(version=12)})
    assert pump_module._word(event) == Gone("u1", "team", "one", 12)


async def test_an_event_that_is_no_object_is_counted_and_costs_nothing_else() -> None:
    pump = new_pump()
    pump._handover = Handover(asyncio.get_running_loop(), lambda _: None)
    pump._see(cast("kopf.RawEvent", {"type": "ADDED", "object": {"metadata": {}}}))
    assert (pump.events, pump.errors) == (1, 1)


async def test_a_pump_that_was_never_started_can_be_stopped_and_not_waited_for() -> None:
    pump = new_pump()
    await pump.stop()
    assert not pump.alive
    with pytest.raises(RuntimeError, match="not started"):
        await pump.wait()


async def test_a_pump_that_reaches_nobody_goes_on_trying_and_stops_when_told() -> None:
    loop, read = asyncio.get_running_loop(), asyncio.Event()

    def connect() -> ConnectionFacts:
        loop.call_soon_threadsafe(read.set)
        return unreachable()

    pump = Pump(PumpSettings(), connect, lambda _: None, HandClock())
    pump.start()
    async with asyncio.timeout(30):
        await read.wait()
        assert pump.alive
        assert not pump.ready.is_set()
        await pump.stop()
        await pump.wait()
        await pump.stop()
    assert not pump.alive


async def test_credentials_that_cannot_be_read_are_read_again(caplog: pytest.LogCaptureFixture) -> None:
    read_twice = asyncio.Event()
    loop = asyncio.get_running_loop()
    reads: list[int] = []

    def read() -> ConnectionFacts:
        reads.append(1)
        if len(reads) == 1:
            raise OSError("the token file is being replaced")
        loop.call_soon_threadsafe(read_twice.set)
        return unreachable()

    pump = Pump(PumpSettings(), read, lambda _: None, HandClock())
    pump.start()
    async with asyncio.timeout(30):
        await read_twice.wait()
        await pump.stop()
    assert [record.message for record in caplog.records if record.name == pump_module.log.name] == [
        "The credentials for the API server could not be read."
    ]


def test_kopf_is_quiet_about_each_object_and_about_signals_that_are_ours() -> None:
    pump_module._hush()
    assert not logging.getLogger("kopf.objects").isEnabledFor(logging.INFO)
    logger = logging.getLogger("kopf._core.reactor.running")
    ignored = logger.makeRecord("x", logging.WARNING, "", 0, "OS signals are ignored: not here.", (), None)
    told = logger.makeRecord("x", logging.WARNING, "", 0, "Something else.", (), None)
    assert (bool(logger.filter(ignored)), bool(logger.filter(told))) == (False, True)


UNANSWERED = "The API server did not show the AgentTerminals; it is asked again."


@pytest.mark.parametrize(
    ("error", "sentence", "fault"),
    [
        (
            APIForbiddenError("agentterminals is forbidden", status=403, headers={}),
            "The API server refuses to show the AgentTerminals; it is asked again.",
            "403: agentterminals is forbidden",
        ),
        (APIServerError(None, status=500, headers={}), UNANSWERED, "500: APIServerError"),
        (TimeoutError(), UNANSWERED, "TimeoutError"),
    ],
)
def test_a_list_that_fails_is_told_in_a_sentence(
    error: Exception, sentence: str, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    pump_module._hush()
    said = f"Request attempt #1/12 failed; will retry: GET https://x/y?limit=500 -> {error!r}"

    try:
        raise error
    except type(error):
        logging.getLogger("kopf._cogs.clients.fetching").log(logging.ERROR, said)

    [record] = caplog.records
    assert record.getMessage().startswith(sentence)
    assert ("AGENTTERMINAL_NAMESPACES" in record.getMessage()) is fault.startswith("403")
    assert record.levelname == "WARNING"
    assert vars(record)["fault"] == fault


def test_what_else_kopf_says_of_its_requests_stands(caplog: pytest.LogCaptureFixture) -> None:
    pump_module._hush()

    logging.getLogger("kopf._cogs.clients.watching").error("Something else.")

    assert [(record.getMessage(), record.levelname) for record in caplog.records] == [("Something else.", "ERROR")]
