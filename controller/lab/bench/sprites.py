"""The loader's hand on the Sprites emulator: sprites in bulk, and the log of what was asked."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
import orjson

from controller.lab.bench.errors import BenchFailed

BATCH_SPRITES: Final = 50
REQUEST_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class SessionPlace:
    """Where a session is."""

    sprite: str
    session: str


class SpritesLab:
    """
    The lab interface of one emulator; use it as `async with`.

    Args:
        url: Where the emulator is.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=REQUEST_SECONDS))

    async def __aenter__(self) -> Self:
        """Be open."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the connections."""
        await self._session.close()

    async def create(self, prefix: str, *, sprites: int, sessions: int) -> Sequence[SessionPlace]:
        """
        Create sprites with this many sessions in all.

        Neighbours in the answer are in different sprites, so that a burst of objects reaches all sprites at once.
        """
        each = -(-sessions // sprites)
        names = [f"{prefix}-{number:04d}" for number in range(sprites)]
        rows: list[list[SessionPlace]] = []
        for start in range(0, sprites, BATCH_SPRITES):
            body = {"names": names[start : start + BATCH_SPRITES], "sessions": {"argv": ["bash"], "count": each}}
            answer = await self._call("POST", "sprites", body)
            rows += [
                [SessionPlace(sprite["name"], session["id"]) for session in sprite["sessions"]]
                for sprite in answer["sprites"]
            ]
        return [place for column in zip(*rows, strict=True) for place in column][:sessions]

    async def create_empty(self, prefix: str, *, sprites: int) -> Sequence[str]:
        """Create sprites that run and in which no session is."""
        names = [f"{prefix}-{number:04d}" for number in range(sprites)]
        await self._call("POST", "sprites", {"names": names})
        for name in names:
            await self._call("PUT", f"sprites/{name}/state", {"status": "running"})
        return names

    async def clear_log(self) -> None:
        """Forget what was asked."""
        await self._call("DELETE", "requests")

    async def count_calls(self) -> Mapping[str, int]:
        """Count what was asked since the log was cleared, by route."""
        answer = await self._call("GET", "requests?door=api&count=true")
        counts: Mapping[str, int] = answer["by_route"]
        return counts

    async def count_calls_of(self, prefix: str) -> Mapping[str, int]:
        """Count what was asked of some sprites since the log was cleared, by route and cause."""
        answer = await self._call("GET", "requests?door=api")
        return Counter(
            f"{entry['route'].replace('.', '_')}_{entry['cause']}"
            for entry in answer["requests"]
            if (entry["sprite"] or "").startswith(prefix)
        )

    async def count_tasks(self, names: Iterable[str]) -> int:
        """Count the tasks that keep some sprites awake."""
        return sum([len((await self._call("GET", f"sprites/{name}/tasks"))["tasks"]) for name in names])

    async def list_kills(self) -> Mapping[SessionPlace, datetime]:
        """Tell when the first request to kill each session arrived, by the wall clock."""
        answer = await self._call("GET", "requests?door=api&route=exec.kill")
        arrivals: dict[SessionPlace, datetime] = {}
        for entry in answer["requests"]:
            place = SessionPlace(entry["sprite"], entry["path"].split("/")[-2])
            arrivals.setdefault(place, datetime.fromtimestamp(entry["time"], UTC))
        return arrivals

    async def _call(self, method: str, path: str, body: object = None) -> Any:
        try:
            async with self._session.request(
                method, f"{self._url}/_lab/{path}", data=None if body is None else orjson.dumps(body)
            ) as answer:
                content = await answer.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise BenchFailed(f"The emulator did not answer {method} /_lab/{path}: {type(error).__name__}.") from error
        if answer.status >= 400:
            raise BenchFailed(f"The emulator answered {answer.status} to {method} /_lab/{path}.")
        return orjson.loads(content) if content else None
