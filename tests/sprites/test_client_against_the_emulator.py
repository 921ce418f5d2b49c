"""The client against the Sprites emulator: real processes, and a second reading of the same documentation."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from controller.api.session import Announced, Cause, KillAnswer, SpriteState, is_same_created
from controller.errors import Failure
from controller.sprites.client import CommandResult, SpritesClient
from controller.sprites.errors import (
    LaunchUnclear,
    Malformed,
    Missing,
    NotFound,
    Refused,
    Rejected,
    ServerFault,
    SpritesError,
    Throttled,
    Unauthorized,
    Unfinished,
    Unreachable,
)
from controller.sprites.token import Token
from controller.tenure import Tenure
from tests.sprites.conftest import SHORT, MakeClient
from tests.support.emulator import EmulatorProcess
from tests.support.secrecy import build_sprites_token

pytestmark = pytest.mark.sprites

TENURE = Tenure(1)
STUBBORN = ["sh", "-c", "trap '' TERM HUP INT; while :; do sleep 1; done"]


@pytest.fixture(scope="module")
def emulator_process() -> Iterator[EmulatorProcess]:
    with EmulatorProcess("--token", build_sprites_token("acme")) as process:
        yield process


@pytest.fixture
def lab(emulator_process: EmulatorProcess) -> Iterator[EmulatorProcess]:
    emulator_process.reset()
    emulator_process.create_sprite("s1")
    yield emulator_process
    emulator_process.reset()


@pytest.fixture
def token(lab: EmulatorProcess) -> Token:
    return Token.read(lab.token)


@pytest.fixture
def client(lab: EmulatorProcess, make_client: MakeClient) -> SpritesClient:
    return make_client(lab.url)


async def launch(client: SpritesClient, token: Token, argv: list[str] | None = None) -> Announced:
    return await client.launch_session(
        token, "s1", argv or STUBBORN, columns=100, rows=30, tenure=TENURE, cause=Cause.LAUNCH
    )


async def kill(client: SpritesClient, token: Token, session_id: str) -> KillAnswer:
    return await client.kill_session(token, "s1", session_id, tenure=TENURE, cause=Cause.KILL)


async def run(
    client: SpritesClient, token: Token, *argv: str, stdin: bytes = b"", output_bytes: int = 1 << 20
) -> CommandResult:
    return await client.run_command(
        token,
        "s1",
        argv,
        stdin=stdin,
        tenure=TENURE,
        cause=Cause.HOLD,
        time_limit=timedelta(seconds=20),
        output_bytes=output_bytes,
    )


async def ask_lab(call: Any, *arguments: Any, **named: Any) -> Any:
    return await asyncio.to_thread(call, *arguments, **named)


async def test_a_list_of_many_sprites_is_complete(client: SpritesClient, token: Token, lab: EmulatorProcess) -> None:
    await ask_lab(lab.create_sprites, prefix="many-", count=120)
    await ask_lab(lab.set_state, "many-0007", "warm")

    found = await client.list_sprites(token, cause=Cause.METADATA, prefix="many-")

    assert sorted(sprite.name for sprite in found) == [f"many-{number:04d}" for number in range(120)]
    assert {sprite.name: sprite.state for sprite in found}["many-0007"] is SpriteState.WARM
    requests = await ask_lab(lab.requests, cause="metadata")
    assert len(requests) == 3


async def test_one_sprite_is_read_without_waking_it(client: SpritesClient, token: Token, lab: EmulatorProcess) -> None:
    sprite = await client.get_sprite(token, "s1", cause=Cause.LAUNCH)

    assert (sprite.name, sprite.state) == ("s1", SpriteState.COLD)
    assert (await ask_lab(lab.sprite, "s1"))["true_status"] == "cold"


async def test_a_missing_sprite_is_told_from_a_missing_route(client: SpritesClient, token: Token) -> None:
    with pytest.raises(NotFound) as raised:
        await client.get_sprite(token, "nobody", cause=Cause.LAUNCH)
    assert raised.value.missing is Missing.SPRITE


async def test_a_wrong_token_is_unauthorized_on_every_way_in(client: SpritesClient) -> None:
    wrong = Token.read("acme/1/aa/wrong")

    with pytest.raises(Unauthorized):
        await client.list_sprites(wrong, cause=Cause.METADATA)
    with pytest.raises(Unauthorized):
        await kill(client, wrong, "1")
    with pytest.raises(Unauthorized):
        await launch(client, wrong)
    with pytest.raises(Unauthorized):
        await run(client, wrong, "true")


async def test_a_launched_session_lives_on_and_is_listed_with_the_identity_it_announced(
    client: SpritesClient, token: Token, lab: EmulatorProcess
) -> None:
    announced = await launch(client, token)

    (session,) = await client.list_sessions(token, "s1", cause=Cause.CHECK)
    assert session.id == announced.id
    assert is_same_created(session.created, announced.created)
    assert abs(announced.created - lab.now()) < timedelta(minutes=1)
    assert session.tty
    (shown,) = await ask_lab(lab.sessions, "s1")
    assert (shown["cols"], shown["rows"]) == (100, 30)


@pytest.mark.case("K3")
async def test_a_process_that_ignores_sigterm_is_killed(
    client: SpritesClient, token: Token, lab: EmulatorProcess
) -> None:
    announced = await launch(client, token)
    assert await ask_lab(lab.processes, "s1")

    assert await kill(client, token, announced.id) is KillAnswer.COMPLETE

    assert await client.list_sessions(token, "s1", cause=Cause.PROVE) == ()
    assert [entry for entry in await ask_lab(lab.processes, "s1") if "trap" in " ".join(entry["argv"])] == []
    (request,) = await ask_lab(lab.requests, route="exec.kill")
    assert request["cause"] == "kill"


@pytest.mark.case("K5")
@pytest.mark.parametrize(("switch", "settled"), [("404", KillAnswer.NOT_FOUND), ("410", KillAnswer.GONE)])
async def test_killing_twice_settles_the_second_request(
    *, client: SpritesClient, token: Token, lab: EmulatorProcess, switch: str, settled: KillAnswer
) -> None:
    await ask_lab(lab.switch, kill_exited=switch)
    announced = await launch(client, token)

    assert await kill(client, token, announced.id) is KillAnswer.COMPLETE
    assert await kill(client, token, announced.id) is settled


@pytest.mark.case("K18")
async def test_the_other_session_of_a_sprite_is_not_touched(client: SpritesClient, token: Token) -> None:
    one, other = await launch(client, token), await launch(client, token)

    await kill(client, token, one.id)

    assert [entry.id for entry in await client.list_sessions(token, "s1", cause=Cause.PROVE)] == [other.id]


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ({"kind": "error-line", "message": "process would not die", "undone": True}, Refused),
        ({"kind": "error-line", "message": None}, Refused),
        ({"kind": "error-line", "position": "first"}, Refused),
        ({"kind": "early-end", "after_lines": 1}, Unfinished),
        ({"kind": "early-end", "after_lines": 1, "clean": True}, Unfinished),
        ({"kind": "status", "status": 500}, ServerFault),
        ({"kind": "status", "status": 429, "headers": {"Retry-After": "3"}}, Throttled),
        ({"kind": "drop"}, Unreachable),
        ({"kind": "drop", "when": "after"}, Unreachable),
    ],
    ids=str,
)
async def test_a_kill_that_goes_wrong_is_named(
    *, client: SpritesClient, token: Token, lab: EmulatorProcess, fault: dict[str, Any], kind: type[SpritesError]
) -> None:
    announced = await launch(client, token)
    await ask_lab(lab.arm_fault, fault, route="exec.kill")

    with pytest.raises(kind):
        await kill(client, token, announced.id)


@pytest.mark.case("K9")
async def test_garbage_between_the_lines_of_a_kill_is_passed_over(
    client: SpritesClient, token: Token, lab: EmulatorProcess
) -> None:
    announced = await launch(client, token)
    await ask_lab(lab.arm_fault, {"kind": "garbage"}, route="exec.kill")

    assert await kill(client, token, announced.id) is KillAnswer.COMPLETE


@pytest.mark.parametrize(("shape", "kind"), [("error", Refused), ("no-sessions", Malformed), ("not-json", Malformed)])
async def test_a_spoilt_list_is_never_no_sessions(
    *, client: SpritesClient, token: Token, lab: EmulatorProcess, shape: str, kind: type[SpritesError]
) -> None:
    await launch(client, token)
    await ask_lab(lab.arm_fault, {"kind": "list", "shape": shape}, route="exec.list")

    with pytest.raises(kind):
        await client.list_sessions(token, "s1", cause=Cause.CHECK)


async def test_a_bare_array_with_whole_numbers_is_read_too(
    client: SpritesClient, token: Token, lab: EmulatorProcess
) -> None:
    announced = await launch(client, token)
    await ask_lab(lab.switch, list_envelope="array")

    assert [entry.id for entry in await client.list_sessions(token, "s1", cause=Cause.CHECK)] == [announced.id]


async def test_a_command_gives_its_streams_and_its_code(client: SpritesClient, token: Token) -> None:
    script = "tr a-z A-Z; echo warning >&2; exit 7"

    assert await run(client, token, "sh", "-c", script, stdin=b"hello\n") == CommandResult(7, b"HELLO\n", b"warning\n")


@pytest.mark.parametrize("text_exit", ["late", "early", "absent"])
async def test_no_output_is_lost_whenever_the_text_exit_comes(
    *, client: SpritesClient, token: Token, lab: EmulatorProcess, text_exit: str
) -> None:
    await ask_lab(lab.switch, text_exit=text_exit)

    result = await run(client, token, "head", "-c", "500000", "/dev/zero")

    assert (result.exit_code, len(result.stdout)) == (0, 500_000)


async def test_a_script_travels_by_stdin_and_stands_in_no_address(
    client: SpritesClient, token: Token, lab: EmulatorProcess
) -> None:
    script = b"umask 077; cat > /tmp/planted\n" + b"x" * 300_000

    assert (await run(client, token, "sh", "-c", "cat > /tmp/planted", stdin=script)).exit_code == 0

    size = await run(client, token, "sh", "-c", "wc -c < /tmp/planted")
    assert int(size.stdout) == len(script)
    assert "umask" not in str(await ask_lab(lab.requests))


async def test_a_command_that_cannot_be_started_is_rejected(client: SpritesClient, token: Token) -> None:
    with pytest.raises(Rejected) as raised:
        await run(client, token, "/no/such/program")
    assert raised.value.status == 400


async def test_a_task_call_from_inside_reaches_the_tasks_of_this_sprite(
    client: SpritesClient, token: Token, lab: EmulatorProcess
) -> None:
    result = await run(
        client,
        token,
        *("curl", "--unix-socket", "/.sprite/api.sock", "--silent", "-o", "/dev/null", "-w", "%{http_code}"),
        *("--max-time", "8", "-X", "PUT", "-H", "Content-Type: application/json", "-d", '{"expire":300}'),
        "http://sprite/v1/tasks/ps-hold-x",
    )

    assert (result.exit_code, result.stdout) == (0, b"200")
    assert [task["name"] for task in await ask_lab(lab.tasks, "s1")] == ["ps-hold-x"]


@pytest.mark.parametrize(
    ("fault", "kind", "started"),
    [
        ({"kind": "status", "status": 401}, Unauthorized, 0),
        ({"kind": "status", "status": 429}, Throttled, 0),
        ({"kind": "status", "status": 500}, ServerFault, 0),
        ({"kind": "status", "status": 502, "html": "<html>bad gateway</html>"}, LaunchUnclear, 0),
        ({"kind": "status", "status": 504, "when": "after"}, LaunchUnclear, 1),
        ({"kind": "drop"}, LaunchUnclear, 0),
        ({"kind": "drop", "when": "after"}, LaunchUnclear, 1),
        ({"kind": "drop", "when": "upgraded"}, LaunchUnclear, 1),
        ({"kind": "delay", "seconds": 3, "when": "after"}, LaunchUnclear, 1),
        ({"kind": "delay", "seconds": 3, "when": "body"}, LaunchUnclear, 1),
    ],
    ids=str,
)
async def test_a_launch_whose_session_may_live_is_never_called_refused(
    *,
    make_client: MakeClient,
    token: Token,
    lab: EmulatorProcess,
    fault: dict[str, Any],
    kind: type[SpritesError],
    started: int,
) -> None:
    await ask_lab(lab.arm_fault, fault, route="exec.create")
    client = make_client(lab.url, **SHORT) if fault["kind"] == "delay" else make_client(lab.url)

    with pytest.raises(kind) as raised:
        await launch(client, token)

    assert type(raised.value) is kind
    assert len(await ask_lab(lab.sessions, "s1")) == started
    assert started == 0 or raised.value.failure is Failure.UNFINISHED


async def test_a_first_socket_on_a_cold_sprite_that_drops_is_unclear(
    client: SpritesClient, token: Token, lab: EmulatorProcess
) -> None:
    await ask_lab(lab.switch, drop_first_socket_on_cold=True)

    with pytest.raises(LaunchUnclear):
        await launch(client, token)
    assert await ask_lab(lab.sessions, "s1") == []
