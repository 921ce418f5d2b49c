"""
Starting a session, and looking for the traces of one: the hands of `plan.launch`.

Two execs make a start: the first (no terminal, standard input) stores the script, the second runs it. Neither carries
an environment or the declared argv in its address.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from controller.api.session import Announced, Cause
from controller.api.terminal import Launch, LaunchIntent
from controller.clock import Clock
from controller.engine.limits import Priority
from controller.engine.observer import SpriteObserver
from controller.engine.tokens import TokenBook, TokenTrouble
from controller.errors import Failure
from controller.plan.facts import Probed
from controller.plan.launch import (
    read_bar,
    read_traces,
    render_bar_command,
    render_launch_script,
    render_probe_command,
    render_session_command,
    render_upload_command,
)
from controller.plan.looks import LookFailed
from controller.sprites.client import SpritesClient
from controller.sprites.errors import LaunchUnclear, SpritesError
from controller.sprites.token import Token
from controller.tenure import Tenure

COMMAND_LIMIT: Final = timedelta(seconds=30)
"""A cold sprite may take 12 s to wake (sprites-api.md 8); a script of some megabytes needs its time as well."""
OUTPUT_BYTES: Final = 64 * 1024
DIRECTORIES: Final = ("/dev/shm", "/tmp")  # noqa: S108  # Where the sprite itself may store the script.


@dataclass(frozen=True, slots=True)
class LaunchLost:
    """The create may have happened, and its answer did not come."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where to act: a sprite, by one token."""

    token: Token
    sprite: str


class Launcher:
    """Acts in sprites on behalf of launches."""

    def __init__(
        self, client: SpritesClient, observer: SpriteObserver, tokens: TokenBook, clock: Clock, tenure: Tenure
    ) -> None:
        self._client = client
        self._observer = observer
        self._tokens = tokens
        self._clock = clock
        self._tenure = tenure

    async def resolve_environment(self, namespace: str, launch: Launch) -> dict[str, str] | TokenTrouble:
        """Give the values to export, those from Secrets included, in the declared order."""
        values: dict[str, str] = {}
        for variable in launch.env:
            if variable.value_from is None:
                values[variable.name] = variable.value or ""
                continue
            ref = variable.value_from.secret_key_ref
            found = await self._tokens.read_value(namespace, ref.name, ref.key)
            if isinstance(found, TokenTrouble):
                return found
            values[variable.name] = found
        return values

    async def store_script(
        self, place: Place, launch: Launch, environment: Mapping[str, str], intent: LaunchIntent
    ) -> str | LookFailed:
        """Store the launch script in the sprite, and give its directory."""
        script = render_launch_script(launch, environment, intent.nonce)
        answer = await self._run(place, render_upload_command(intent.nonce), stdin=script, cause=Cause.LAUNCH)
        if isinstance(answer, LookFailed):
            return answer
        code, output = answer
        directory = output.strip()
        if code != 0 or directory not in DIRECTORIES:
            text = f"Storing the launch script in sprite {place.sprite} failed with exit code {code}."
            return LookFailed(Failure.MALFORMED, text, self._clock.monotonic())
        return directory

    async def create(
        self, place: Place, directory: str, launch: Launch, intent: LaunchIntent
    ) -> Announced | LookFailed | LaunchLost:
        """Create the session; a failure that cannot have started it is told apart from a lost answer."""
        started = self._clock.monotonic()
        try:
            async with self._observer.calling(place.token, place.sprite, priority=Priority.NORMAL, cause=Cause.LAUNCH):
                announced = await self._client.launch_session(
                    place.token,
                    place.sprite,
                    render_session_command(directory, intent.nonce),
                    columns=launch.columns,
                    rows=launch.rows,
                    tenure=self._tenure,
                    cause=Cause.LAUNCH,
                )
        except LaunchUnclear:
            return LaunchLost()
        except SpritesError as error:
            return LookFailed(error.failure, error.message, started, error.retry_after)
        self._observer.note_awake(place.token, place.sprite)
        return announced

    async def probe(self, place: Place, intent: LaunchIntent) -> Probed | LookFailed:
        """Look for the traces of a launch."""
        started = self._clock.monotonic()
        answer = await self._run(place, render_probe_command(intent.nonce), stdin=b"", cause=Cause.FIND)
        if isinstance(answer, LookFailed):
            return answer
        code, output = answer
        return Probed(read_traces(output) if code == 0 else None, started)

    async def bar(self, place: Place, intent: LaunchIntent) -> bool | LookFailed:
        """Keep a launch from ever running; False where it had run before."""
        answer = await self._run(place, render_bar_command(intent.nonce), stdin=b"", cause=Cause.FIND)
        if isinstance(answer, LookFailed):
            return answer
        code, output = answer
        is_barred = read_bar(output)
        if code != 0 or is_barred is None:
            text = f"Barring a launch in sprite {place.sprite} failed with exit code {code}."
            return LookFailed(Failure.MALFORMED, text, self._clock.monotonic())
        return is_barred

    async def _run(
        self, place: Place, argv: tuple[str, ...], *, stdin: bytes, cause: Cause
    ) -> tuple[int, str] | LookFailed:
        started = self._clock.monotonic()
        try:
            async with self._observer.calling(place.token, place.sprite, priority=Priority.NORMAL, cause=cause):
                result = await self._client.run_command(
                    place.token,
                    place.sprite,
                    argv,
                    stdin=stdin,
                    tenure=self._tenure,
                    cause=cause,
                    time_limit=COMMAND_LIMIT,
                    output_bytes=OUTPUT_BYTES,
                )
        except SpritesError as error:
            return LookFailed(error.failure, error.message, started, error.retry_after)
        self._observer.note_awake(place.token, place.sprite)
        return result.exit_code, result.stdout.decode("utf-8", "replace")
