"""Sprites and tokens: create, list, show, change, delete. Source: sprites-api.md 1 and 2."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.lab.emulator.talking import Client, wait_until
from tests.support.emulator import EmulatorProcess, Lab, LabRefused
from tests.support.secrecy import build_sprites_token

pytestmark = pytest.mark.sprites


@pytest.mark.parametrize("path", ["/v1/sprites", "/v1/sprites/my-sprite", "/v1/unheard-of", "/"])
@pytest.mark.parametrize(
    "headers", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {build_sprites_token('acme')}"}]
)
async def test_without_a_right_token_every_path_answers_401(client: Client, path: str, headers: dict[str, str]) -> None:
    async with client.http.get(client.url + path, headers=headers) as response:
        assert (response.status, await response.json()) == (401, {"error": "authentication failed"})


async def test_with_a_token_an_unknown_path_answers_404(client: Client) -> None:
    assert (await client.ask("GET", "/v1/unheard-of"))[:2] == (404, "404 page not found")
    assert (await client.ask("GET", "/v1/sprites/my-sprite/control"))[0] == 404


async def test_each_token_has_an_organization_of_its_own(client: Client, emulator: EmulatorProcess) -> None:
    other = Lab(emulator.url, emulator.tokens[1])
    with pytest.raises(LabRefused) as caught:
        other.call("GET", "/v1/sprites/my-sprite")
    assert (caught.value.status, json.loads(caught.value.body)) == (404, {"error": "sprite not found"})
    assert other.create_sprite("my-sprite")["organization"] == "other"
    assert [sprite["organization"] for sprite in emulator.call("GET", "/v1/sprites")["sprites"]] == ["acme"]


async def test_a_created_sprite_is_shown_with_all_its_fields(client: Client, emulator: EmulatorProcess) -> None:
    status, text, headers = await client.ask("POST", "/v1/sprites", json={"name": "new", "labels": ["a"]})
    created = json.loads(text)
    assert status == 201
    assert created == emulator.call("GET", "/v1/sprites/new")
    assert created["id"].startswith("sprite-")
    assert (created["status"], created["labels"], created["url_settings"]) == ("cold", ["a"], {"auth": "sprite"})
    assert (created["last_running_at"], created["last_warming_at"]) == (None, None)
    assert {"x-request-id", "fly-request-id", "via"} <= {name.lower() for name in headers}
    assert "Sprite-Version" not in headers


@pytest.mark.parametrize("name", ["", "Upper", "under_score", "-dash", "dash-", "a" * 64, "dot.ted"])
async def test_a_bad_name_is_refused(client: Client, name: str) -> None:
    status, text, _ = await client.ask("POST", "/v1/sprites", json={"name": name})
    assert (status, json.loads(text)) == (400, {"errors": ["invalid sprite name format"]})


async def test_a_name_of_63_characters_is_fine_and_a_taken_one_is_not(
    client: Client, emulator: EmulatorProcess
) -> None:
    assert (await client.ask("POST", "/v1/sprites", json={"name": "a" * 63}))[0] == 201
    assert (await client.ask("POST", "/v1/sprites", json={"name": "a" * 63}))[0] == 409
    emulator.switch(duplicate_status=400)
    assert (await client.ask("POST", "/v1/sprites", json={"name": "a" * 63}))[0] == 400


async def test_a_bad_body_creates_nothing(client: Client) -> None:
    for body in ("[]", '"text"', '{"name": 3}', '{"name": "x", "url_settings": {"auth": "all"}}', "{"):
        headers = {"Authorization": f"Bearer {client.token}"}
        async with client.http.post(client.url + "/v1/sprites", data=body, headers=headers) as response:
            assert response.status == 400
            assert "errors" in await response.json()
    assert (await client.ask("GET", "/v1/sprites/x"))[0] == 404


async def test_an_update_changes_what_it_names(client: Client) -> None:
    _, text, _ = await client.ask("PUT", "/v1/sprites/my-sprite", json={"labels": ["x"]})
    _, text, _ = await client.ask("PUT", "/v1/sprites/my-sprite", json={"url_settings": {"auth": "public"}})
    changed = json.loads(text)
    assert (changed["labels"], changed["url_settings"]) == (["x"], {"auth": "public"})
    _, text, _ = await client.ask("PUT", "/v1/sprites/my-sprite", json={"clear_labels": True})
    assert json.loads(text)["labels"] == []


async def test_a_deleted_sprite_is_not_found(client: Client) -> None:
    assert (await client.ask("DELETE", "/v1/sprites/my-sprite"))[:2] == (204, "")
    for method, path in (("GET", ""), ("DELETE", ""), ("PUT", ""), ("GET", "/exec"), ("POST", "/exec/2/kill")):
        status, text, _ = await client.ask(method, f"/v1/sprites/my-sprite{path}")
        assert (status, json.loads(text)) == (404, {"error": "sprite not found"})


async def test_the_list_comes_in_pages_of_at_most_50(client: Client, emulator: EmulatorProcess) -> None:
    emulator.create_sprites(prefix="many-", count=101)
    emulator.create_sprites(prefix="mine-", count=3)
    sizes, token, names = [], "", []
    while True:
        query = {"prefix": "many-", "max_results": "100", **({"continuation_token": token} if token else {})}
        page = json.loads((await client.ask("GET", "/v1/sprites", query=query))[1])
        sizes.append(len(page["sprites"]))
        names += [sprite["name"] for sprite in page["sprites"]]
        token = page["next_continuation_token"]
        assert page["has_more"] is bool(token)
        if not token:
            break
    assert sizes == [50, 50, 1]
    assert names == sorted(set(names))
    assert (page["cold"], page["org"]["cold"], page["org"]["name"]) == (105, 105, "acme")


async def test_a_page_may_be_smaller_and_slim(client: Client, emulator: EmulatorProcess) -> None:
    emulator.create_sprites(prefix="many-", count=3)
    query = {"max_results": "2", "prefix": "many-", "bulk_load": "true"}
    page = json.loads((await client.ask("GET", "/v1/sprites", query=query))[1])
    assert [set(sprite) for sprite in page["sprites"]] == [{"name", "org_slug", "updated_at"}] * 2


@pytest.mark.parametrize("query", [{"max_results": "0"}, {"max_results": "x"}, {"continuation_token": "made-up"}])
async def test_a_wrong_page_is_refused(client: Client, query: dict[str, str]) -> None:
    status, text, _ = await client.ask("GET", "/v1/sprites", query=query)
    assert (status, list(json.loads(text))) == (400, ["errors"])


async def test_the_session_list_has_the_documented_envelope(client: Client, emulator: EmulatorProcess) -> None:
    session = emulator.start_session("my-sprite", "sleep", "1000")
    status, text, headers = await client.ask("GET", "/v1/sprites/my-sprite/exec")
    body = json.loads(text)
    assert (status, headers["Sprite-Version"], body["count"]) == (200, "v0.0.1-rc48", 1)
    assert body["sessions"] == [
        {
            "id": "2",
            "command": "/usr/bin/sleep 1000",
            "workdir": "/home/sprite",
            "created": session["created"],
            "tty": True,
            "bytes_per_second": 0.0,
            "is_active": False,
            "last_activity": None,
        }
    ]
    emulator.switch(list_envelope="array")
    assert json.loads((await client.ask("GET", "/v1/sprites/my-sprite/exec"))[1])[0]["id"] == 2


async def test_the_version_is_told_to_a_head_request(client: Client) -> None:
    status, _, headers = await client.ask("HEAD", "/v1/sprites/my-sprite/exec")
    assert (status, headers["Sprite-Version"]) == (200, "v0.0.1-rc48")


@pytest.mark.parametrize(
    ("switch", "alone", "attached"),
    [("attached", False, True), ("always", True, True), ("never", False, False), ("recent-output", True, True)],
)
async def test_what_is_active_means_is_a_switch(
    client: Client, emulator: EmulatorProcess, switch: str, *, alone: bool, attached: bool
) -> None:
    emulator.switch(is_active=switch)
    talk = await client.start("sh", "-c", "echo hi; sleep 1000", tty="true")
    await talk.hear_until(b"hi")
    assert emulator.list_sessions("my-sprite")[0]["is_active"] is attached
    await talk.leave()
    wait_until(lambda: emulator.sessions("my-sprite")[0]["clients"], lambda clients: clients == 0)
    assert emulator.list_sessions("my-sprite")[0]["is_active"] is alone


async def test_the_listed_command_may_follow_an_exec(client: Client, emulator: EmulatorProcess) -> None:
    talk = await client.start("sh", "-c", "echo ready; exec sleep 1000", tty="true")
    await talk.hear_until(b"ready")
    # A process that is just becoming its command has no words for a moment.
    wait_until(
        lambda: [process["argv"][:1] for process in emulator.processes("my-sprite")], lambda one: one == [["sleep"]]
    )
    assert emulator.list_sessions("my-sprite")[0]["command"] == "/usr/bin/sh -c echo ready; exec sleep 1000"
    emulator.switch(listed_command="current")
    assert emulator.list_sessions("my-sprite")[0]["command"] == "sleep 1000"


async def test_the_live_watch_tells_of_changes_and_beats(client: Client, emulator: EmulatorProcess) -> None:
    emulator.switch(heartbeat_seconds=0.1, watch_snapshot=True)
    headers = {"Authorization": f"Bearer {client.token}", "Accept": "application/x-ndjson"}
    async with client.http.get(client.url + "/v1/sprites", headers=headers) as response, asyncio.timeout(30):
        assert response.headers["Content-Type"] == "application/x-ndjson"
        snapshot = json.loads(await response.content.readline())
        assert (snapshot["name"], snapshot["status"]) == ("my-sprite", "cold")
        assert json.loads(await response.content.readline())["type"] == "heartbeat"
        emulator.set_state("my-sprite", "running")
        while (line := json.loads(await response.content.readline())).get("type") == "heartbeat":
            pass
        assert (line["name"], line["status"]) == ("my-sprite", "running")


async def test_a_web_page_does_not_reach_the_lab(client: Client) -> None:
    for headers in ({"Origin": "http://evil.example"}, {"Host": "evil.example"}):
        async with client.http.get(client.url + "/_lab/sprites", headers=headers) as response:
            assert response.status == 403


def read_listening() -> list[str]:
    lines = Path("/proc/net/tcp").read_text().splitlines()
    return [line.split()[1] for line in lines if line.split()[3] == "0A"]


async def test_the_emulator_listens_on_loopback_only(client: Client) -> None:
    port = int(client.url.rpartition(":")[2])
    listening = read_listening()
    assert f"0100007F:{port:04X}" in listening
    assert f"00000000:{port:04X}" not in listening


async def test_a_wrong_lab_request_names_field_and_rule(client: Client) -> None:
    status, text, _ = await client.ask("PATCH", "/_lab/switches", json={"idle_seconds": -1, "unheard_of": 1})
    assert status == 400
    assert [fault["field"] for fault in json.loads(text)["faults"]] == ["idle_seconds", "unheard_of"]
