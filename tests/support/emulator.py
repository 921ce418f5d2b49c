"""
The Sprites emulator for tests: as a process of its own, with words for its lab interface.

`EmulatorProcess` starts `agentterminal sprites-emulator` and ends it; it is a `Lab`, whose calls are synchronous. From
a coroutine write `await asyncio.to_thread(lab.requests, route="exec.kill")`. Tests that want the emulator in their own
loop use `controller.lab.emulator.Emulator`, and a `Lab` on its address (in a thread, since the loop serves).
"""

import http.client
import json
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, urlencode, urlsplit

from controller.lab.processes import build_tethered_command
from tests.support.secrecy import build_sprites_token, look

START_SECONDS = 30.0
STOP_SECONDS = 30.0
AGENTTERMINAL = str(Path(sys.executable).with_name("agentterminal"))


class LabRefused(Exception):
    """The emulator answered with an error status."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"{status}: {body}")
        self.status = status
        self.body = body


class Lab:
    """The lab interface of an emulator, and the little of its API that set-ups need. All calls block."""

    def __init__(self, url: str, token: str) -> None:
        self.url = url
        self.token = token

    def call(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """Make any call; the answer is parsed JSON, text where it is none, None where it is empty."""
        address = urlsplit(self.url)
        asked = {name: value for name, value in query.items() if value is not None}
        connection = http.client.HTTPConnection(address.netloc, timeout=90)
        try:
            connection.request(
                method,
                f"{path}?{urlencode(asked)}" if asked else path,
                body=None if body is None else json.dumps(body),
                headers={"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"},
            )
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            connection.close()
        if response.status >= 400:
            raise LabRefused(response.status, text)
        if not text:
            return None
        return json.loads(text) if response.getheader("Content-Type") == "application/json" else text

    # The API itself.

    def create_sprite(self, name: str) -> Any:
        """Create a sprite and return it; it is cold."""
        return self.call("POST", "/v1/sprites", {"name": name})

    def delete_sprite(self, name: str) -> None:
        """Delete a sprite."""
        self.call("DELETE", f"/v1/sprites/{quote(name)}")

    def list_sessions(self, name: str) -> list[Any]:
        """List the sessions as a client sees them; this wakes the sprite and stands in the log."""
        sessions: list[Any] = self.call("GET", f"/v1/sprites/{quote(name)}/exec")["sessions"]
        return sessions

    # The lab interface.

    def create_sprites(self, *names: str, prefix: str = "sprite-", count: int = 0, sessions: Any = None) -> list[Any]:
        """Create many sprites at once, each with sessions where told: `sessions={"argv": [...], "count": 10}`."""
        body = {"names": names, "prefix": prefix, "count": count, "sessions": sessions}
        created: list[Any] = self.call("POST", "/_lab/sprites", body)["sprites"]
        return created

    def sprite(self, name: str) -> Any:
        """Show a sprite with all that the lab knows: true_status, home, wakes, sessions, tasks."""
        return self.call("GET", f"/_lab/sprites/{quote(name)}")

    def set_state(self, name: str, status: str) -> Any:
        """Make a sprite running, warm or cold, at once."""
        return self.call("PUT", f"/_lab/sprites/{quote(name)}/state", {"status": status})

    def start_session(self, name: str, *argv: str, tty: bool = True, env: dict[str, str] | None = None) -> Any:
        """Start a session inside, with nobody attached; `env` replaces the environment, as in the API."""
        body = {"argv": argv, "tty": tty, "env": env}
        return self.call("POST", f"/_lab/sprites/{quote(name)}/sessions", body)["sessions"][0]

    def sessions(self, name: str) -> list[Any]:
        """List the sessions with size, clients, signals and received input; wakes nothing."""
        sessions: list[Any] = self.call("GET", f"/_lab/sprites/{quote(name)}/sessions")["sessions"]
        return sessions

    def processes(self, name: str) -> list[Any]:
        """Show the process table: host_pid, inner_pid, parent_pid, state, argv."""
        processes: list[Any] = self.call("GET", f"/_lab/sprites/{quote(name)}/processes")["processes"]
        return processes

    def tasks(self, name: str) -> list[Any]:
        """List the live tasks with their expiry."""
        tasks: list[Any] = self.call("GET", f"/_lab/sprites/{quote(name)}/tasks")["tasks"]
        return tasks

    def requests(self, **wanted: Any) -> list[Any]:
        """
        List requests, oldest first.

        By route, method, sprite, cause, door, status, since (a number), after (unix time); with `at_least` it waits
        for so many, up to `wait_seconds` (5).
        """
        requests: list[Any] = self.call("GET", "/_lab/requests", **wanted)["requests"]
        return requests

    def count_requests(self, **wanted: Any) -> dict[str, int]:
        """Count requests by route."""
        counts: dict[str, int] = self.call("GET", "/_lab/requests", count="true", **wanted)["by_route"]
        return counts

    def clear_requests(self) -> None:
        """Forget the log."""
        self.call("DELETE", "/_lab/requests")

    def arm_fault(self, fault: dict[str, Any], **rule: Any) -> Any:
        """Make the next requests that match fail: `arm_fault({"kind": "status", "status": 500}, route="exec.kill")`."""
        return self.call("POST", "/_lab/faults", {"fault": fault, **rule})

    def disarm_faults(self) -> None:
        """Let everything work again."""
        self.call("DELETE", "/_lab/faults")

    def switch(self, **switches: Any) -> Any:
        """Decide open questions differently from now on."""
        return self.call("PATCH", "/_lab/switches", switches)

    def switch_sprite(self, name: str, **switches: Any) -> Any:
        """Decide open questions differently for one sprite; without any, as for all others again."""
        method = "PATCH" if switches else "DELETE"
        return self.call(method, f"/_lab/sprites/{quote(name)}/switches", switches or None)

    def tell_random_lies(self, seed: int) -> Any:
        """Draw a mix of lies, within what a correct client survives; returns `seed`, `values` and `given_up`."""
        return self.call("POST", "/_lab/random-lies", {"seed": seed})

    def now(self) -> datetime:
        """The emulated wall time, which is ahead of the machine's by all that any test before has let pass."""
        return datetime.fromisoformat(self.call("GET", "/_lab/clock")["now"])

    def advance_clock(self, seconds: float) -> Any:
        """Let emulated time pass; what becomes due is done when this returns."""
        return self.call("POST", "/_lab/clock", {"advance_seconds": seconds})

    def stop_clock(self) -> None:
        """Let no emulated time pass from now on but what `advance_clock` lets pass, however long a test takes."""
        self.call("POST", "/_lab/clock", {"stands": True})

    def reset(self) -> None:
        """Delete all sprites, faults, log entries and changed switches, and let the clock go."""
        self.call("POST", "/_lab/reset")


class EmulatorProcess(Lab):
    """A running `agentterminal sprites-emulator`; use it as a context manager, or call `stop`."""

    def __init__(self, *arguments: str, command: Sequence[str] = (AGENTTERMINAL,)) -> None:
        """
        Start it and wait until it answers.

        Args:
            arguments: Options of the command, for example `--records` or `--idle-seconds`, `30`. Without `--token` it
                accepts one that is found wherever it shows.
            command: How to call `agentterminal`.
        """
        if "--token" not in arguments:
            arguments = (*arguments, "--token", build_sprites_token())
        self.process = subprocess.Popen(
            build_tethered_command([*command, "sprites-emulator", "--json", *arguments], death_signal=signal.SIGTERM),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], START_SECONDS)
        line = self.process.stdout.readline() if ready else b""
        if not line:
            self.process.kill()
            _, complaints = self.process.communicate(timeout=STOP_SECONDS)
            raise RuntimeError(f"The emulator did not start: {complaints.decode()}")
        facts = json.loads(line)
        self.tokens: list[str] = facts["tokens"]
        self.isolation: str = facts["isolation"]
        self.random_lies: dict[str, Any] | None = facts["random_lies"]
        super().__init__(facts["url"], self.tokens[0])

    @property
    def pid(self) -> int:
        """The process to send signals to."""
        return self.process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> int:
        """End it and all that runs inside; return its exit code. Stopped is stopped."""
        if self.process.poll() is None:
            self.process.terminate()
        elif self.process.stdout is not None and self.process.stdout.closed:
            return self.process.returncode
        try:
            written, complaints = self.process.communicate(timeout=STOP_SECONDS)
            # Its first line was read when it started, and has the tokens that it accepts.
            look("What the emulator wrote", written + complaints)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise
        return self.process.returncode
