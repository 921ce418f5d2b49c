"""
`kubectl aterm`: AgentTerminals for people at a shell.

`attach` and `view` go through the gateway (`controller.cli.attach`); everything else goes to the API server alone, with
the person's own kubeconfig and rights.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeVar

import click
from rich.console import Console

from controller import __version__
from controller.api.conditions import ConditionStatus, ConditionType
from controller.api.instants import TIME_PATTERN
from controller.api.rules import SPRITE_NAME
from controller.api.terminal import read_status
from controller.cli.attach import attach_command, view_command
from controller.cli.errors import ExitCode
from controller.cli.login import choose_login
from controller.cli.main import run_command
from controller.cli.names import NAME_ARGUMENT, NAMESPACE_OPTION, SUBDOMAIN, must_match
from controller.client.objects import Objects
from controller.client.rights import PersonKube
from controller.client.telling import (
    build_row,
    describe_progress,
    find_condition,
    is_judged,
    is_proven,
    order_rows,
    render_costs,
    render_events,
    render_proof,
    render_session,
    render_sum,
)
from controller.clock import Clock, SystemClock
from controller.kube.credentials import load_credentials
from controller.kube.settings import KubeSettings

F = TypeVar("F", bound=Callable[..., Any])

_OPERATOR_WITHIN: Final = timedelta(seconds=10)
"""For the operator to say what it makes of a change that needs no call to a sprite."""

_HOLD_WITHIN: Final = timedelta(seconds=9)
"""For a hold to begin or to end, before it is told as it stands."""

_PAGE_WIDTH: Final = 500
"""Of a table that goes to no terminal: whatever reads it cuts it itself."""

_FALLBACK_NAMESPACE: Final = "default"
"""As kubectl has it, where a kubeconfig names none."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and end the process with its exit code."""
    sys.exit(run_command(aterm, arguments, program="kubectl aterm"))


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "--version", prog_name="kubectl aterm", help="Show the version and exit.")
def aterm() -> None:
    """
    Attach to, end, hold and count AgentTerminals.

    `attach` and `view` go through the gateway, everything else needs the API server alone. The rights are your own.
    """


aterm.add_command(attach_command)
aterm.add_command(view_command)


def _reaching(command: F) -> F:
    """Give a command the options by which it reaches the API server."""
    options = (
        click.option("--kubeconfig", metavar="FILE", help="The kubeconfig. Without it: $KUBECONFIG, else the usual."),
        click.option("--context", metavar="NAME", help="Its context. Without it: the current one."),
        NAMESPACE_OPTION,
    )
    for option in reversed(options):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class _Desk:
    """One person at the API server."""

    objects: Objects
    namespace: str
    clock: Clock


@asynccontextmanager
async def _open_desk(kubeconfig: str | None, context: str | None, namespace: str | None) -> AsyncIterator[_Desk]:
    clock = SystemClock()
    settings = KubeSettings(login=choose_login(kubeconfig, context))
    credentials = await load_credentials(settings, clock=clock)
    async with PersonKube(credentials, settings, clock, lambda _: None) as kube:
        where = namespace or credentials.facts.namespace or _FALLBACK_NAMESPACE
        yield _Desk(Objects(kube, clock), where, clock)


def _run(work: Coroutine[Any, Any, int]) -> int:
    return asyncio.run(work)


def _console() -> Console:
    console = Console(highlight=False)
    return console if console.is_terminal else Console(width=_PAGE_WIDTH, highlight=False)


@aterm.command(name="ps")
@click.option("-A", "--all-namespaces", is_flag=True, help="In all namespaces.")
@_reaching
def ps_command(*, all_namespaces: bool, kubeconfig: str | None, context: str | None, namespace: str | None) -> int:
    """
    List terminals with what they cost, the dearest first.

    STATE is that of the sprite: one that is running is paid for. HELD FOR says how long a hold of ours has kept it
    awake, IDLE FOR how long nobody has been attached, ACTIVE when the session was last seen to do something. All of it
    is as of the operator's last write.

    Exit code: 0, also where there is none; 1 when there is no such namespace.
    """

    async def work() -> int:
        async with _open_desk(kubeconfig, context, namespace) as desk:
            found = await desk.objects.list_all(None if all_namespaces else desk.namespace)
            rows = order_rows(build_row(terminal, desk.clock.now()) for terminal in found)
        if not rows:
            where = "any namespace" if all_namespaces else f"namespace {desk.namespace}"
            click.echo(f"There is no AgentTerminal in {where}.", err=True)
            return ExitCode.DONE
        _console().print(render_costs(rows, with_namespace=all_namespaces))
        click.echo(render_sum(rows), err=True)
        return ExitCode.DONE

    return _run(work())


@aterm.command(name="kill")
@NAME_ARGUMENT
@click.option(
    "--wait-seconds",
    type=click.IntRange(0, 86_400),
    default=120,
    show_default=True,
    help="Wait so long for the proof; 0 does not wait.",
)
@_reaching
def kill_command(
    *, name: str, wait_seconds: int, kubeconfig: str | None, context: str | None, namespace: str | None
) -> int:
    """
    End NAME with SIGKILL, and wait for the proof.

    Sets `terminated`, which cannot be taken back. The operator kills; this waits and shows how it went.

    Exit code: 0 when the death is proven (or nothing was waited for), 1 when it is not yet.
    """

    async def work() -> int:
        async with _open_desk(kubeconfig, context, namespace) as desk:
            asked = await desk.objects.terminate(desk.namespace, name)
            click.echo(f"Asked for the end of {desk.namespace}/{name}.", err=True)
            if not wait_seconds:
                return ExitCode.DONE
            return await _await_proof(desk, name, asked, timedelta(seconds=wait_seconds))

    return _run(work())


async def _await_proof(desk: _Desk, name: str, asked: dict[str, Any], within: timedelta) -> int:
    generation, uid = asked["metadata"]["generation"], asked["metadata"]["uid"]
    told = ""
    async for terminal in desk.objects.follow(desk.namespace, name, within=within):
        if terminal["metadata"]["uid"] != uid:
            click.echo(f"Error: {desk.namespace}/{name} is another object by now; yours is gone.", err=True)
            return ExitCode.FAILED
        status = read_status(terminal.get("status"))
        if is_proven(status, generation):
            click.echo(f"{desk.namespace}/{name} is dead.")
            for line in render_proof(status):
                click.echo(line)
            return ExitCode.DONE
        progress = describe_progress(status, ConditionType.TERMINATED, generation)
        if progress != told:
            told = progress
            click.echo(progress, err=True)
    click.echo(
        f"Error: the death of {desk.namespace}/{name} is not proven after {within.total_seconds():.0f} s: {told} The"
        " operator goes on; look again with `kubectl aterm kill` or `kubectl wait --for=condition=Terminated`.",
        err=True,
    )
    return ExitCode.FAILED


@aterm.command(name="adopt")
@NAME_ARGUMENT
@click.option(
    "--sprite",
    required=True,
    metavar="SPRITE",
    callback=must_match(SPRITE_NAME.removesuffix("$"), "the name of a sprite (a-z, 0-9 and -)"),
    help="The sprite in which the session runs.",
)
@click.option("--session", required=True, metavar="ID", help="The session's id, as the sprite's session list shows it.")
@click.option(
    "--created",
    metavar="TIME",
    callback=must_match(TIME_PATTERN.removesuffix("$"), "a time with its zone, such as 2026-11-30T12:00:00.000Z"),
    help="When that session was created, as the list shows it (RFC 3339). Ids come again; the two together do not.",
)
@click.option("--trust-id", is_flag=True, help="Take whatever session has the id, without asking when it was created.")
@click.option(
    "--token-secret",
    metavar="NAME[/KEY]",
    callback=must_match(rf"{SUBDOMAIN}(/[-._a-zA-Z0-9]+)?", "a Secret as NAME or NAME/KEY"),
    help="The Secret with the Sprites token, in the same namespace, and its key (token unless you say otherwise).",
)
@_reaching
def adopt_command(
    *,
    name: str,
    sprite: str,
    session: str,
    created: str | None,
    trust_id: bool,
    token_secret: str | None,
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
) -> int:
    """
    Declare a running session as the AgentTerminal NAME.

    Writes the session's id and its created time: ids come again after a cold start, and without the time another
    process may be adopted, and killed, in its place.

    Exit code: 0 when it is adopted, 1 when it is not.
    """
    if (created is None) == (not trust_id):
        raise click.UsageError("Give one of the two: --created, or --trust-id to take whatever session has the id.")
    spec: dict[str, Any] = {"spriteName": sprite, "sessionId": session}
    if created is not None:
        spec["sessionCreatedTime"] = created
    if token_secret is not None:
        secret, _, key = token_secret.partition("/")
        spec["tokenSecretRef"] = {"name": secret, "key": key} if key else {"name": secret}

    async def work() -> int:
        async with _open_desk(kubeconfig, context, namespace) as desk:
            made = await desk.objects.adopt(desk.namespace, name, spec)
            click.echo(f"Declared {desk.namespace}/{name}.", err=True)
            return await _await_adoption(desk, name, made["metadata"]["generation"])

    return _run(work())


async def _await_adoption(desk: _Desk, name: str, generation: int) -> int:
    told = ""
    async for terminal in desk.objects.follow(desk.namespace, name, within=_OPERATOR_WITHIN):
        status = read_status(terminal.get("status"))
        told = describe_progress(status, ConditionType.READY, generation)
        ready, stalled = (find_condition(status, kind) for kind in (ConditionType.READY, ConditionType.STALLED))
        if is_judged(ready, generation) and ready.status is ConditionStatus.TRUE:
            click.echo(f"{desk.namespace}/{name} has {render_session(status)}.")
            return ExitCode.DONE
        if is_judged(stalled, generation) and stalled.status is ConditionStatus.TRUE:
            click.echo(f"Error: {desk.namespace}/{name} was not adopted: {told} The object stays.", err=True)
            return ExitCode.FAILED
    click.echo(
        f"Error: {desk.namespace}/{name} is not adopted after {_OPERATOR_WITHIN.total_seconds():.0f} s: {told} The"
        " object stays, and the operator goes on.",
        err=True,
    )
    return ExitCode.FAILED


@aterm.command(name="hold")
@NAME_ARGUMENT
@_reaching
def hold_command(*, name: str, kubeconfig: str | None, context: str | None, namespace: str | None) -> int:
    """
    Keep the sprite of NAME awake while there is work.

    Sets `holdWanted`. Whether it is held by now, and why not, is told; a hold never wakes a sprite.
    """
    return _run(_want_hold(name, kubeconfig, context, namespace, wanted=True))


@aterm.command(name="release")
@NAME_ARGUMENT
@_reaching
def release_command(*, name: str, kubeconfig: str | None, context: str | None, namespace: str | None) -> int:
    """
    Let the sprite of NAME pause again.

    Takes `holdWanted` back.
    """
    return _run(_want_hold(name, kubeconfig, context, namespace, wanted=False))


async def _want_hold(
    name: str, kubeconfig: str | None, context: str | None, namespace: str | None, *, wanted: bool
) -> int:
    async with _open_desk(kubeconfig, context, namespace) as desk:
        written = await desk.objects.want_hold(desk.namespace, name, wanted=wanted)
        generation = written["metadata"]["generation"]
        verb = "Asked to hold" if wanted else "Asked to release"
        click.echo(f"{verb} {desk.namespace}/{name}.", err=True)
        deadline = desk.clock.monotonic() + _HOLD_WITHIN
        async for terminal in desk.objects.follow(desk.namespace, name, within=_OPERATOR_WITHIN):
            status = read_status(terminal.get("status"))
            condition = find_condition(status, ConditionType.HELD)
            is_held = condition.status is ConditionStatus.TRUE
            # A hold that is not there yet may come with the next call to the sprite, or may wait for work for hours.
            if is_judged(condition, generation) and (is_held is wanted or desk.clock.monotonic() >= deadline):
                progress = describe_progress(status, ConditionType.HELD, generation)
                click.echo(f"{desk.namespace}/{name} is {'held' if is_held else 'not held'}. {progress}")
                return ExitCode.DONE
    click.echo(
        "Error: the operator has not said what became of it after "
        f"{_OPERATOR_WITHIN.total_seconds():.0f} s. What was asked for stands; is the operator running?",
        err=True,
    )
    return ExitCode.FAILED


@aterm.command(name="events")
@NAME_ARGUMENT
@_reaching
def events_command(*, name: str, kubeconfig: str | None, context: str | None, namespace: str | None) -> int:
    """
    Show what was told about NAME, the latest last.

    These are the Events of the operator; the API server keeps them for an hour.
    """

    async def work() -> int:
        async with _open_desk(kubeconfig, context, namespace) as desk:
            events = await desk.objects.list_events(desk.namespace, name)
        if not events:
            click.echo(f"There are no Events about {desk.namespace}/{name}; the API server keeps them for an hour.")
            return ExitCode.DONE
        _console().print(render_events(events, desk.clock.now()))
        return ExitCode.DONE

    return _run(work())


if __name__ == "__main__":
    main()
