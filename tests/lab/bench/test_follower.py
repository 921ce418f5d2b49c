"""The bench's own view of the objects: what belongs to an attach, and what a gateway writes once a minute anyway."""

from typing import Any

import orjson
import pytest

from controller.clock import SystemClock
from controller.lab.bench.client import ApiClient
from controller.lab.bench.follower import Follower


class Pages(ApiClient):
    """An API server of which each list shows the next state."""

    def __init__(self, *states: list[dict[str, Any]]) -> None:
        self._states = list(states)

    async def request(
        self, method: str, path: str, body: object = None, *, content_type: str = "application/json"
    ) -> bytes:
        return orjson.dumps({"items": self._states.pop(0), "metadata": {"resourceVersion": "7"}})


def terminal(name: str, **activity: str | None) -> dict[str, Any]:
    entries = [
        {"incarnation": gateway, "viewers": 1, **({} if moment is None else {"activityTime": moment})}
        for gateway, moment in activity.items()
    ]
    return {"metadata": {"name": name, "resourceVersion": "7", "generation": 1}, "status": {"gateways": entries}}


@pytest.mark.parametrize(
    ("states", "writes"),
    [
        ([[terminal("a")], [terminal("a", one=None)], [terminal("a", one=None)]], 0),
        ([[terminal("a", one="12:00")], [terminal("a", one="12:00")]], 1),
        ([[terminal("a", one="12:00")], [terminal("a", one="12:01", two="12:01")]], 3),
        ([[terminal("a"), terminal("b")], [terminal("a", one="12:00"), terminal("b", one="12:00")]], 2),
        ([[terminal("a", one="12:00")], [terminal("a", one=None)], [terminal("a", one="12:00")]], 2),
    ],
    ids=["who looks on", "the same once more", "two gateways", "two terminals", "told again after it was dropped"],
)
async def test_each_moment_that_a_gateway_tells_of_a_terminal_is_one_write(
    states: list[list[dict[str, Any]]], writes: int
) -> None:
    follower = Follower(Pages(*states), SystemClock())

    for _ in states:
        async with follower.following():
            pass

    assert follower.activity_writes == writes
