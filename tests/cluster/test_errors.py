"""
Every error of tokens and of the Sprites API, on a real API server: the condition it becomes, and how it ends.

The operator reads metadata every second here, so that what takes 30 s elsewhere is seen soon.
"""

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.plane import Cluster
from tests.support.emulator import EmulatorProcess, Lab
from tests.support.operator import World, await_true, read_condition

STUBBORN = ("sh", "-c", "trap '' TERM; while :; do sleep 1; done")
LAUNCH = {"command": ["sleep", "600"]}
MANY = 100_000
REREAD_WITHIN = 80.0
"""A Secret is read again after 60 s; the rest is for a busy machine."""

Fault = dict[str, Any]


@pytest.fixture
def world(cluster: Cluster, namespace: str, lab: EmulatorProcess) -> Iterator[World]:
    with World(cluster, namespace, lab) as world:
        world.start_operator(METADATA_SECONDS="1")
        yield world
        assert_no_secret_was_told(world, lab.token)


def assert_no_secret_was_told(world: World, *secrets: str) -> None:
    """Neither objects nor events nor the log show a token, and no bug was met."""
    assert world.operator is not None
    _, terminals = world.cluster.request("GET", world.path)
    _, events = world.cluster.request("GET", f"/apis/events.k8s.io/v1/namespaces/{world.namespace}/events")
    log = world.operator.log_file.read_text()
    for secret in secrets:
        assert secret not in json.dumps([terminals, events]) + log
    assert "Traceback" not in log
    assert "nobody foresaw" not in log


def adopt(world: World, name: str, **spec: Any) -> dict[str, Any]:
    """Adopt a fresh session, and return it."""
    session: dict[str, Any] = world.lab.start_session("box", *STUBBORN)
    world.create(name, sessionId=session["id"], **spec)
    world.await_reason(name, "Detached")
    return session


def summarize(status: dict[str, Any], *kinds: str) -> dict[str, tuple[str, str]]:
    conditions = {kind: read_condition(status, kind) for kind in kinds}
    return {kind: (condition["status"], condition["reason"]) for kind, condition in conditions.items()}


def assert_blind(status: dict[str, Any], reason: str) -> None:
    """Nothing is known, and it is tried again: the row "Sprites API down" of the table."""
    assert summarize(status, "Ready", "Reconciling", "Stalled") == {
        "Ready": ("Unknown", reason),
        "Reconciling": ("True", reason),
        "Stalled": ("False", reason),
    }


def assert_stalled(status: dict[str, Any], reason: str) -> None:
    """A person must act: the row of the table with phase Failed."""
    assert summarize(status, "Ready", "Reconciling", "Stalled") == {
        "Ready": ("False", reason),
        "Reconciling": ("False", reason),
        "Stalled": ("True", reason),
    }
    assert status["phase"] == "Failed"


def in_two_seconds() -> str:
    """A date as HTTP writes it; it has whole seconds, so this is one to two seconds from now."""
    return format_datetime(datetime.now(UTC) + timedelta(seconds=2), usegmt=True)


# --- the Sprites API --------------------------------------------------------------------------------------------------

OUTAGES: list[tuple[str, Callable[[], Fault], str, str]] = [
    ("500", lambda: {"kind": "status", "status": 500, "body": {"error": "no luck"}}, "SpritesUnavailable", "no luck"),
    (
        "502 as a page",
        lambda: {"kind": "status", "status": 502, "html": "<html>Bad gateway</html>"},
        "SpritesUnavailable",
        "HTTP 502 (an HTML page)",
    ),
    (
        "503 that says when",
        lambda: {"kind": "status", "status": 503, "headers": {"Retry-After": "1"}},
        "SpritesUnavailable",
        "HTTP 503",
    ),
    (
        "429 with seconds",
        lambda: {"kind": "status", "status": 429, "headers": {"Retry-After": "1"}},
        "Throttled",
        "HTTP 429",
    ),
    (
        "429 with a date",
        lambda: {"kind": "status", "status": 429, "headers": {"Retry-After": in_two_seconds()}},
        "Throttled",
        "HTTP 429",
    ),
    (
        "429 that says at once",
        lambda: {"kind": "status", "status": 429, "headers": {"Retry-After": "0"}},
        "Throttled",
        "429",
    ),
    ("429 alone", lambda: {"kind": "status", "status": 429}, "Throttled", "HTTP 429"),
    (
        "a page with 200",
        lambda: {"kind": "status", "status": 200, "html": "<html>Hello</html>"},
        "SpritesUnavailable",
        "HTML",
    ),
    (
        "an error with 200",
        lambda: {"kind": "status", "status": 200, "body": {"error": "later"}},
        "SpritesUnavailable",
        "later",
    ),
    (
        "an answer without the list",
        lambda: {"kind": "status", "status": 200, "body": {}},
        "SpritesUnavailable",
        "`sprites`",
    ),
    (
        "a redirect",
        lambda: {"kind": "status", "status": 302, "headers": {"Location": "/"}},
        "SpritesUnavailable",
        "302",
    ),
    ("400", lambda: {"kind": "status", "status": 400}, "SpritesUnavailable", "HTTP 400"),
    ("a cut connection", lambda: {"kind": "drop"}, "SpritesUnavailable", "Listing the sprites"),
    ("an early end", lambda: {"kind": "early-end"}, "SpritesUnavailable", "Listing the sprites"),
]


@pytest.mark.parametrize(("fault", "reason", "said"), [row[1:] for row in OUTAGES], ids=[row[0] for row in OUTAGES])
def test_while_the_api_fails_what_is_pending_says_so_and_what_rests_is_left_alone(
    world: World, fault: Callable[[], Fault], reason: str, said: str
) -> None:
    adopt(world, "resting")
    before = world.get("resting")
    world.lab.arm_fault(fault(), route="sprites.list", times=MANY)
    failing_since = time.time()
    await_true(lambda: bool(world.lab.requests(route="sprites.list", after=failing_since)), "a look that fails")

    world.create("pending", spriteName="other", launch=LAUNCH)
    status = world.await_reason("pending", reason)

    assert_blind(status, reason)
    assert status["phase"] == "Pending"
    assert summarize(status, "SpriteReachable", "Terminated", "SessionLive") == {
        "SpriteReachable": ("Unknown", reason),
        "Terminated": ("False", "NotRequested"),
        "SessionLive": ("False", "NoSession"),
    }
    message = read_condition(status, "Reconciling")["message"]
    assert said in message or "asked us to slow down" in message
    assert message.endswith("It is tried again.")

    world.lab.create_sprite("other")
    world.lab.disarm_faults()
    world.await_reason("pending", "Detached")
    after = world.get("resting")
    assert before is not None
    assert after is not None
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    assert world.events("resting") == []


def test_a_throttled_token_is_left_in_peace_for_as_long_as_it_asked(world: World) -> None:
    wait = {"kind": "status", "status": 429, "headers": {"Retry-After": "3"}}
    world.lab.arm_fault(wait, route="sprites.list", times=1)
    world.lab.clear_requests()

    for number in range(20):
        world.create(f"one-{number}", launch=LAUNCH)
    for number in range(20):
        world.await_reason(f"one-{number}", "Detached")

    calls = world.lab.requests(door="api")
    refused = next(call for call in calls if call["status"] == 429)
    others = [call["time"] for call in calls if call["number"] > refused["number"]]
    assert min(others) - refused["finished"] >= 2.9


def test_a_throttled_token_keeps_no_other_from_its_work(world: World) -> None:
    with EmulatorProcess("--token", world.lab.token, "--token", "other/1/aa/bb") as both:
        slow, quick = both, Lab(both.url, "other/1/aa/bb")
        slow.create_sprite("box")
        quick.create_sprite("quick")
        world.put_secret("quick", token=quick.token)
        world.sprites_url = both.url
        world.start_operator(METADATA_SECONDS="1", WORKERS="4")
        wait = {"kind": "status", "status": 429, "headers": {"Retry-After": "600"}}
        slow.arm_fault(wait, route="sprites.list", times=1)

        world.create("slow-first", launch=LAUNCH)
        world.await_reason("slow-first", "Throttled")
        later = time.monotonic() + 1.2
        await_true(lambda: time.monotonic() > later, "the shared failure to be too old for those who come now")
        for number in range(12):
            world.create(f"slow-{number}", launch=LAUNCH)
        for number in range(12):
            world.await_reason(f"slow-{number}", "Throttled")
        world.create("quick", spriteName="quick", tokenSecretRef={"name": "quick"}, launch=LAUNCH)
        world.await_reason("quick", "Detached", within=10)
        assert world.operator is not None
        world.operator.stop()
        world.operator = None
        world.sprites_url = world.lab.url
        world.start_operator()


def test_a_sprite_that_is_missing_is_waited_for_and_used_once_it_is_created(world: World) -> None:
    world.create("one", spriteName="later", launch=LAUNCH)
    status = world.await_reason("one", "SpriteNotFound")

    assert summarize(status, "Ready", "Reconciling", "Stalled", "SpriteReachable") == {
        "Ready": ("False", "SpriteNotFound"),
        "Reconciling": ("True", "SpriteNotFound"),
        "Stalled": ("False", "SpriteNotFound"),
        "SpriteReachable": ("False", "SpriteNotFound"),
    }
    assert "no sprite later" in read_condition(status, "Reconciling")["message"]

    world.lab.create_sprite("later")
    status = world.await_reason("one", "Detached", within=10)
    assert summarize(status, "SpriteReachable") == {"SpriteReachable": ("True", "Reachable")}


def test_a_token_without_the_right_to_a_sprite_is_told_and_used_once_it_has_it(world: World) -> None:
    world.lab.arm_fault(
        {"kind": "status", "status": 403, "body": {"error": "not yours"}}, route="sprites.list", times=MANY
    )
    world.create("one", launch=LAUNCH)
    status = world.await_reason("one", "TokenForbidden", "Stalled")

    assert_stalled(status, "TokenForbidden")
    assert summarize(status, "SpriteReachable") == {"SpriteReachable": ("False", "TokenForbidden")}
    message = read_condition(status, "Stalled")["message"]
    assert "HTTP 403 (not yours)" in message
    assert "the token under the key token of Secret sprites" in message
    await_events(world, "one", ("Warning", "TokenForbidden"))

    world.lab.disarm_faults()
    world.await_reason("one", "Detached", within=10)


@pytest.mark.parametrize(
    ("fault", "reason", "said"),
    [
        ({"kind": "list", "shape": "error", "error": "agent is away"}, "SpritesUnavailable", "agent is away"),
        ({"kind": "list", "shape": "no-sessions"}, "SpritesUnavailable", "no list named `sessions`"),
        ({"kind": "list", "shape": "not-json"}, "SpritesUnavailable", "session list"),
        ({"kind": "early-end"}, "SpritesUnavailable", "the sessions of the sprite box"),
        ({"kind": "drop"}, "SpritesUnavailable", "the sessions of the sprite box"),
        ({"kind": "status", "status": 404, "body": {"error": "sprite not found"}}, "SpriteNotFound", "HTTP 404"),
    ],
)
def test_a_session_list_that_says_less_than_the_truth_adopts_and_launches_nothing(
    world: World, fault: Fault, reason: str, said: str
) -> None:
    session = world.lab.start_session("box", *STUBBORN)
    world.lab.arm_fault(fault, route="exec.list", times=MANY)

    world.create("one", sessionId=session["id"], launch=LAUNCH)
    status = world.await_reason("one", reason)

    assert said in read_condition(status, "Reconciling")["message"]
    assert len(world.live()) == 1

    world.lab.disarm_faults()
    status = world.await_reason("one", "Detached")
    assert status["session"]["origin"] == "Adopted"
    assert len(world.live()) == 1


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ({"kind": "status", "status": 401}, "TokenRejected"),
        ({"kind": "status", "status": 403}, "TokenForbidden"),
        ({"kind": "status", "status": 429, "headers": {"Retry-After": "1"}}, "Throttled"),
        ({"kind": "drop"}, None),
        ({"kind": "status", "status": 500}, "Starting"),
        ({"kind": "status", "status": 503, "html": "<html></html>"}, None),
    ],
    ids=["401", "403", "429", "drop", "500", "503"],
)
def test_a_launch_that_meets_an_error_starts_its_command_once(world: World, fault: Fault, reason: str | None) -> None:
    world.lab.arm_fault(fault, route="exec.create", times=1)
    world.create("one", launch=LAUNCH)
    if reason is not None:
        status = world.await_reason("one", reason)
        assert status["session"]["launchIntent"]["nonce"]
    if reason in ("TokenRejected", "TokenForbidden"):
        world.patch("one", relaunch="OnLost")  # a person's nudge; a Secret is read again by itself after a minute

    status = world.await_reason("one", "Detached")
    assert len(world.live()) == 1
    assert status["session"]["id"] == world.live()[0]["id"]


def test_a_call_that_takes_too_long_is_given_up_and_made_again(world: World) -> None:
    session = world.lab.start_session("box", *STUBBORN)
    # Twice, so that the state between the two stands long enough to be seen.
    world.lab.arm_fault({"kind": "delay", "seconds": 40}, route="exec.list", times=2)

    world.create("one", sessionId=session["id"])
    status = world.await_reason("one", "SpritesUnavailable", within=40)

    assert_blind(status, "SpritesUnavailable")
    assert "took longer than 20 s" in read_condition(status, "Reconciling")["message"]
    world.await_reason("one", "Detached", within=40)


@pytest.mark.case("K12")
def test_a_kill_that_takes_too_long_is_given_up_after_ten_seconds_and_sent_again(world: World) -> None:
    adopt(world, "one")
    world.lab.arm_fault({"kind": "delay", "seconds": 30}, route="exec.kill", times=1)

    world.patch("one", terminated=True)
    world.await_reason("one", "Confirmed", "Terminated", within=30)

    first, second = world.lab.requests(route="exec.kill")
    assert 10 <= second["time"] - first["time"] < 15
    assert world.live() == []


def test_an_api_that_refuses_connections_is_waited_for(world: World) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as reserved:
        port = reserved.getsockname()[1]
    world.sprites_url = f"http://127.0.0.1:{port}"
    world.start_operator(METADATA_SECONDS="1")

    world.create("one", launch=LAUNCH)
    status = world.await_reason("one", "SpritesUnavailable")
    assert_blind(status, "SpritesUnavailable")
    assert "Listing the sprites" in read_condition(status, "Reconciling")["message"]

    with EmulatorProcess("--port", str(port), "--token", world.lab.token) as late:
        late.create_sprite("box")
        world.await_reason("one", "Detached", within=15)
        world.patch("one", terminated=True)
        world.await_reason("one", "Confirmed", "Terminated")


# --- ends under errors ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "where", "status", "reason"),
    [
        ({"kind": "status", "status": 500}, {}, "Unknown", "SpritesUnavailable"),
        ({"kind": "status", "status": 429, "headers": {"Retry-After": "1"}}, {}, "Unknown", "Throttled"),
        ({"kind": "status", "status": 401}, {}, "False", "TokenRejected"),
        ({"kind": "status", "status": 403}, {}, "False", "TokenForbidden"),
        ({"kind": "drop"}, {}, "Unknown", "SpritesUnavailable"),
        ({"kind": "status", "status": 502, "html": "<html></html>"}, {}, "Unknown", "SpritesUnavailable"),
        ({"kind": "list", "shape": "error", "error": "away"}, {"route": "exec.list"}, "Unknown", "SpritesUnavailable"),
        ({"kind": "list", "shape": "no-sessions"}, {"route": "exec.list"}, "Unknown", "SpritesUnavailable"),
        (
            {"kind": "status", "status": 404, "body": {"error": "sprite not found"}},
            {"route": "exec.list"},
            "False",
            "SpriteNotFound",
        ),
        (
            {"kind": "status", "status": 429, "headers": {"Retry-After": "1"}},
            {"route": "exec.kill"},
            "Unknown",
            "Throttled",
        ),
        ({"kind": "status", "status": 401}, {"route": "exec.kill"}, "False", "TokenRejected"),
        ({"kind": "status", "status": 403}, {"route": "exec.kill"}, "False", "TokenForbidden"),
        ({"kind": "status", "status": 500}, {"route": "exec.kill"}, "False", "KillFailed"),
        ({"kind": "error-line", "undone": True}, {"route": "exec.kill"}, "False", "KillFailed"),
    ],
)
def test_an_end_under_an_error_keeps_its_record_names_the_way_out_and_is_completed_afterwards(
    world: World, fault: Fault, where: dict[str, str], status: str, reason: str
) -> None:
    sessions = [adopt(world, "ended"), adopt(world, "deleted")]
    world.lab.arm_fault(fault, times=MANY, **where)

    world.patch("ended", terminated=True)
    world.delete("deleted")
    for name, session in zip(("ended", "deleted"), sessions, strict=True):
        seen = world.await_reason(name, reason, "Terminated")
        terminal = world.get(name)
        assert terminal is not None
        assert terminal["metadata"]["finalizers"] == ["agentterminal.dev/session"]
        assert seen["session"]["id"] == session["id"]
        assert "ended" not in seen["session"]
        condition = read_condition(seen, "Terminated")
        assert condition["status"] == status
        assert "`deletionPolicy: Orphan`" in condition["message"]
        assert read_condition(seen, "Ready")["status"] != "True"
        await_events(world, name, ("Warning", reason))
    assert len(world.live()) == 2

    world.lab.disarm_faults()
    if reason in ("TokenRejected", "TokenForbidden"):
        # Its own wait is a minute, so it is nudged, once the failure is old enough to be asked about again.
        later = time.time() + 1
        await_true(lambda: bool(world.lab.requests(route="sprites.list", after=later)), "the metadata of later")
        world.patch("ended", holdWanted=True)
        world.patch("deleted", holdWanted=True)
    world.await_reason("ended", "Confirmed", "Terminated")
    world.await_gone("deleted")
    assert world.live() == []


def test_orphan_lets_a_deleted_object_go_under_any_error(world: World) -> None:
    adopt(world, "one")
    world.lab.arm_fault({"kind": "status", "status": 500}, times=MANY)
    world.delete("one")
    world.await_reason("one", "SpritesUnavailable", "Terminated")

    world.patch("one", deletionPolicy="Orphan")

    world.await_gone("one")
    assert len(world.live()) == 1


def test_what_is_declared_for_adoption_and_its_end_is_not_called_unasked_while_the_api_fails(world: World) -> None:
    session = world.lab.start_session("box", *STUBBORN)
    world.lab.arm_fault({"kind": "status", "status": 500}, route="sprites.list", times=MANY)

    world.create("one", sessionId=session["id"], terminated=True)
    status = world.await_reason("one", "SpritesUnavailable", "Terminated")
    assert read_condition(status, "Terminated")["status"] == "Unknown"

    world.lab.disarm_faults()
    world.await_reason("one", "Confirmed", "Terminated")
    assert world.live() == []


# --- tokens -----------------------------------------------------------------------------------------------------------

SECRETS: dict[str, tuple[dict[str, str] | None, str, str]] = {
    "missing": (None, "SecretNotFound", "Secret missing does not exist, or the operator may not read it."),
    "keyless": ({"other": "x"}, "SecretKeyMissing", "Secret keyless has no value under the key token."),
    "empty": ({"token": ""}, "SecretKeyMissing", "Secret empty has no value under the key token."),
    "spaced": (
        {"token": "planted secret/1"},
        "TokenInvalid",
        "Key token of Secret spaced: The Sprites token has white space",
    ),
    "broken": (
        {"token": "planted\x07secret"},
        "TokenInvalid",
        "Key token of Secret broken: The Sprites token has a control",
    ),
    "newline": ({"token": "\n"}, "TokenInvalid", "Key token of Secret newline: The Sprites token is empty"),
    "refused": ({"token": "planted/1/secret"}, "TokenRejected", "the token under the key token of Secret refused"),
}


@pytest.mark.timeout(200)
def test_every_trouble_with_a_token_has_its_reason_and_ends_by_itself_once_the_secret_is_mended(world: World) -> None:
    for name, (values, _, _) in SECRETS.items():
        if values is not None:
            world.put_secret(name, **values)
        world.create(name, tokenSecretRef={"name": name}, launch=LAUNCH)

    for name, (_, reason, said) in SECRETS.items():
        status = world.await_reason(name, reason, "Stalled")
        assert_stalled(status, reason)
        assert said in read_condition(status, "Stalled")["message"]
        reachable = ("False", "TokenRejected") if name == "refused" else ("Unknown", "Pending")
        assert summarize(status, "SpriteReachable") == {"SpriteReachable": reachable}
        await_events(world, name, ("Warning", reason))
    assert world.live() == []
    assert_no_secret_was_told(world, "planted")
    mended = time.monotonic()
    for name in SECRETS:
        world.put_secret(name, token=world.lab.token)

    for name in SECRETS:
        left = max(0.1, REREAD_WITHIN - (time.monotonic() - mended))
        status = world.await_reason(name, "Detached", within=left)
        assert summarize(status, "Stalled", "Ready") == {
            "Stalled": ("False", "Detached"),
            "Ready": ("True", "Detached"),
        }
    assert len(world.live()) == len(SECRETS)


def await_events(world: World, name: str, *expected: tuple[str, str]) -> None:
    """Wait until there are exactly these events about a terminal."""
    await_true(lambda: tell_events(world, name) == list(expected), f"events about {name}", 10)


def tell_events(world: World, name: str) -> list[tuple[str, str]]:
    return [(event["type"], event["reason"]) for event in world.events(name)]


def test_a_refused_token_is_read_again_and_its_successor_is_used_at_once(world: World) -> None:
    successor = "lab/2/aa/bb"
    with EmulatorProcess("--token", "lab/1/cc/dd", "--token", successor) as rotating:
        rotating.create_sprite("box")
        world.put_secret("sprites", token="lab/1/cc/dd")
        world.sprites_url = rotating.url
        world.start_operator()
        world.create("first", launch=LAUNCH)
        world.await_reason("first", "Detached")

        world.put_secret("sprites", token=successor)
        rotating.arm_fault({"kind": "status", "status": 401}, route="exec.list", times=1)
        session = rotating.start_session("box", *STUBBORN)
        rotating.clear_requests()
        world.create("second", sessionId=session["id"])
        world.await_reason("second", "Detached")

        refused, repeated = rotating.requests(route="exec.list", cause="adopt")
        assert (refused["status"], repeated["status"]) == (401, 200)
        assert repeated["time"] - refused["finished"] < 1
        assert tell_events(world, "second") == []

        rotating.arm_fault({"kind": "status", "status": 401}, route="exec.kill", times=MANY)
        world.put_secret("sprites", token="lab/1/cc/dd")
        world.patch("second", terminated=True)
        world.await_reason("second", "TokenRejected", "Terminated")
        kills = rotating.requests(route="exec.kill")
        assert [kill["status"] for kill in kills] == [401, 401]
        assert kills[1]["time"] - kills[0]["finished"] < 1
        assert_no_secret_was_told(world, successor, "lab/1/cc/dd")


def test_the_last_good_token_ends_what_it_started_after_its_secret_was_deleted(world: World) -> None:
    adopt(world, "ended")
    adopt(world, "deleted")
    delete_secret(world, "sprites")

    world.delete("deleted")
    world.patch("ended", terminated=True)

    world.await_gone("deleted")
    world.await_reason("ended", "Confirmed", "Terminated")
    assert world.live() == []


def delete_secret(world: World, name: str) -> None:
    status, _ = world.cluster.request("DELETE", f"/api/v1/namespaces/{world.namespace}/secrets/{name}")
    assert status == 200


def test_without_any_token_an_end_keeps_its_record_until_the_operator_has_one_of_its_own(
    world: World, tmp_path: Path
) -> None:
    session = adopt(world, "ended")
    adopt(world, "deleted")
    delete_secret(world, "sprites")
    world.start_operator(METADATA_SECONDS="1")
    world.delete("deleted")
    world.patch("ended", terminated=True)
    for name in ("deleted", "ended"):
        status = world.await_reason(name, "SecretNotFound", "Terminated")
        assert_stalled(status, "SecretNotFound")
        assert "`deletionPolicy: Orphan`" in read_condition(status, "Terminated")["message"]
    assert world.status("ended")["session"]["id"] == session["id"]
    assert len(world.live()) == 2

    # It serves neither this namespace nor this sprite; what is recorded is ended with it all the same.
    start_with_own_token(world, tmp_path, namespaces="elsewhere", sprites="nothing")
    world.await_gone("deleted")
    world.await_reason("ended", "Confirmed", "Terminated")
    assert world.live() == []


def start_with_own_token(
    world: World, folder: Path, *, namespaces: str, sprites: str, token: str | None = None
) -> Path:
    file = folder / "token"
    file.write_text(f"{token or world.lab.token}\n")
    world.start_operator(
        METADATA_SECONDS="1",
        SPRITES_TOKEN_FILE=str(file),
        OWN_TOKEN_NAMESPACES=namespaces,
        OWN_TOKEN_SPRITES=sprites,
    )
    return file


def test_the_own_token_of_another_organization_proves_no_death_by_seeing_nothing(world: World, tmp_path: Path) -> None:
    other = "stranger/1/aa/bb"
    with EmulatorProcess("--token", world.lab.token, "--token", other) as both:
        both.create_sprite("box")
        session = both.start_session("box", *STUBBORN)
        world.sprites_url = both.url
        world.start_operator(METADATA_SECONDS="1")
        world.create("one", sessionId=session["id"])
        world.await_reason("one", "Detached")
        delete_secret(world, "sprites")
        start_with_own_token(world, tmp_path, namespaces="*", sprites="*", token=other)

        world.patch("one", terminated=True)
        world.await_reason("one", "SpriteNotFound", "Terminated")
        # Two complete listings that lie a minute apart would be a proof to a token that had seen the sprite.
        later = time.time() + 62
        await_true(lambda: bool(both.requests(route="sprites.list", after=later)), "a listing a minute later", 75)
        both.clear_requests()
        world.patch("one", holdWanted=True)
        await_true(lambda: bool(both.requests(route="sprites.get", sprite="box")), "another look")
        status = world.await_reason("one", "SpriteNotFound", "Terminated")
        assert both.requests(route="exec.kill") == []
        assert summarize(status, "Terminated") == {"Terminated": ("False", "SpriteNotFound")}
        assert len(both.sessions("box")) == 1


def test_the_operators_own_token_serves_exactly_what_its_patterns_name(world: World, tmp_path: Path) -> None:
    world.lab.create_sprites("dev-1", "prod-1")
    file = start_with_own_token(world, tmp_path, namespaces="elsewhere,test-*", sprites="dev-?")

    world.create("served", spriteName="dev-1", tokenSecretRef=None, launch=LAUNCH)
    world.create("other-sprite", spriteName="prod-1", tokenSecretRef=None, launch=LAUNCH)
    world.await_reason("served", "Detached")
    status = world.await_reason("other-sprite", "TokenNotAllowed", "Stalled")
    assert_stalled(status, "TokenNotAllowed")
    message = read_condition(status, "Stalled")["message"]
    assert "sprite prod-1" in message
    assert f"namespace {world.namespace}" in message
    assert "Name a Secret" in message
    world.patch("other-sprite", tokenSecretRef={"name": "sprites"})
    world.await_reason("other-sprite", "Detached")

    file.write_text("not a token\n")
    world.create("third", spriteName="dev-1", tokenSecretRef=None, launch=LAUNCH)
    status = world.await_reason("third", "TokenInvalid", "Stalled")
    assert "The operator's own token cannot be read" in read_condition(status, "Stalled")["message"]
    file.write_text(world.lab.token)
    world.patch("third", holdWanted=True)
    world.await_reason("third", "Detached")


def test_a_namespace_without_right_to_the_operators_token_is_told_what_to_do(world: World, tmp_path: Path) -> None:
    start_with_own_token(world, tmp_path, namespaces="elsewhere", sprites="*")

    world.create("one", tokenSecretRef=None, launch=LAUNCH)

    status = world.await_reason("one", "TokenNotAllowed", "Stalled")
    assert_stalled(status, "TokenNotAllowed")
    assert world.lab.requests(door="api") == []


def test_a_live_terminal_whose_token_was_taken_away_says_so_and_is_still_ended(world: World, tmp_path: Path) -> None:
    start_with_own_token(world, tmp_path, namespaces="elsewhere", sprites="*")
    session = adopt(world, "one")

    world.patch("one", tokenSecretRef=None)
    status = world.await_reason("one", "TokenNotAllowed", "Stalled")
    assert_stalled(status, "TokenNotAllowed")
    assert status["session"]["id"] == session["id"]

    world.patch("one", terminated=True)
    world.await_reason("one", "Confirmed", "Terminated")
    assert world.live() == []
