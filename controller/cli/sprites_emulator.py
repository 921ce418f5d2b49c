"""
`agentterminal sprites-emulator`: a Sprites API on this machine, until Ctrl-C.

Promise: it says where it listens once it answers, and however it ends, nothing that ran inside a sprite lives on.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

import click
import orjson
from pydantic import ValidationError

from controller.lab.emulator import Emulator, EmulatorSettings, Isolation, Switches
from controller.lab.emulator.mixing import Mix
from controller.lab.emulator.switches import render_value
from controller.lab.processes import run_until_signalled


def parse_switches(pairs: Iterable[str]) -> dict[str, Any]:
    """
    Read `name=value` pairs; a value is JSON where it can be, and a word otherwise.

    Raises:
        click.BadParameter: A pair has no equals sign.
    """
    switches: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise click.BadParameter(f"{pair!r} is not of the form name=value.", param_hint="--lie")
        name = name.strip().replace("-", "_")
        try:
            value = orjson.loads(text)
        except orjson.JSONDecodeError:
            value = text
        # `tty_close=1000` means the word: the fields that take words take no numbers.
        field = Switches.model_fields.get(name)
        wants_word = field is not None and isinstance(field.default, str)
        switches[name] = text if wants_word else value
    return switches


def build_settings(
    *,
    port: int,
    tokens: tuple[str, ...],
    isolation: Isolation,
    switches: dict[str, Any],
    random_lies: int | None = None,
) -> EmulatorSettings:
    """
    Check all settings at once.

    Raises:
        click.UsageError: Every fault, with name, value and rule.
    """
    try:
        return EmulatorSettings.model_validate(
            {
                "port": port,
                "tokens": tokens,
                "isolation": isolation,
                "switches": switches,
                "random_lies": random_lies,
            }
        )
    except ValidationError as error:
        faults = [
            f"  {'.'.join(str(part) for part in fault['loc'])} = {fault['input']!r}: {fault['msg']}"
            for fault in error.errors()
        ]
        raise click.UsageError("\n".join(["These settings are not valid:", *faults])) from error


def render_welcome(emulator: Emulator) -> str:
    """Say where it listens and how to use it."""
    what = {
        Isolation.ROOT: "real processes, each sprite in a mount and pid namespace of its own",
        Isolation.USER: "real processes, each sprite in a user, mount and pid namespace of its own",
        Isolation.PLAIN: "real processes without namespaces: see --plain for what is lost",
        Isolation.RECORDS: "records without processes",
    }
    lines = [
        f"Sprites emulator at {emulator.url} ({what.get(emulator.isolation, '')}).",
        f"export SPRITES_API_URL={emulator.url}",
        *(f"export SPRITE_TOKEN={token}" for token in emulator.tokens[:1]),
        *(f"Another organization's token: {token}" for token in emulator.tokens[1:]),
        f"What happened inside: curl {emulator.url}/_lab/requests",
        *render_mix(emulator.mix),
    ]
    return "\n".join(lines)


def render_mix(mix: Mix | None) -> list[str]:
    """Say which lies were drawn, in the form in which they can be told again one by one."""
    if mix is None:
        return []
    told = [f"--lie {name}={render_value(value)}" for name, value in mix.values.items()]
    given_up = [f"Drawn and given up, since it clashed: {', '.join(mix.given_up)}"] if mix.given_up else []
    return [f"The lies of seed {mix.seed}: {' '.join(told)}", *given_up]


async def serve(settings: EmulatorSettings, ready: asyncio.Event, *, as_json: bool) -> None:
    """Serve until cancelled, or until a bug inside ends it."""
    async with Emulator(settings) as emulator:
        if as_json:
            facts = {
                "url": emulator.url,
                "tokens": emulator.tokens,
                "isolation": emulator.isolation.value,
                "random_lies": None if emulator.mix is None else emulator.mix.render(),
            }
            click.echo(orjson.dumps(facts))
        else:
            click.echo(render_welcome(emulator))
        ready.set()
        await emulator.wait()


@click.command("sprites-emulator")
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default=True, help="0 takes a free one.")
@click.option(
    "--token",
    "tokens",
    multiple=True,
    metavar="TOKEN",
    help="Accept this token; the part before its first slash names its organization. May be repeated. "
    "Without one, a token is made up and shown.",
)
@click.option(
    "--idle-seconds",
    type=click.FloatRange(0),
    default=None,
    help="Let a silent sprite become warm after this time. 0 is never.  [default: 0]",
)
@click.option(
    "--cold-after-seconds",
    type=click.FloatRange(0),
    default=None,
    help="Let a warm sprite become cold after this time. 0 is never.  [default: 0]",
)
@click.option(
    "--lie",
    "--switch",
    "pairs",
    multiple=True,
    metavar="NAME=VALUE",
    help="Decide an open question of the Sprites API, for example list_wakes=false. May be repeated; "
    "docs/emulator-lies.md lists them.",
)
@click.option(
    "--random-lies",
    type=click.IntRange(0),
    default=None,
    metavar="SEED",
    help="Decide many of them by this seed, within what a correct client survives. What --lie names stays as it says.",
)
@click.option(
    "--records",
    is_flag=True,
    help="Keep sessions as records without processes, for benchmarks with thousands of them.",
)
@click.option(
    "--plain",
    is_flag=True,
    help="Run processes without namespaces. Lost are: a sprite's own /.sprite/api.sock, /home/sprite, /tmp and "
    "/dev/shm, session ids that come again after a cold start, and the certainty that nothing outlives a kill -9.",
)
@click.option("--user-namespace", is_flag=True, help="Use a user namespace even as root.")
@click.option("--json", "as_json", is_flag=True, help="Announce address and tokens as one line of JSON.")
def sprites_emulator_command(
    port: int,
    tokens: tuple[str, ...],
    idle_seconds: float | None,
    cold_after_seconds: float | None,
    pairs: tuple[str, ...],
    *,
    random_lies: int | None,
    records: bool,
    plain: bool,
    user_namespace: bool,
    as_json: bool,
) -> int:
    """
    Serve the Sprites API on loopback, with real processes, until Ctrl-C.

    Every sprite has its own process ids, home folder, /dev/shm and Tasks API; every open question of the published
    API is a switch. Under /_lab/ it shows what was asked, makes calls fail on demand, and moves its clock. However
    it ends, no process of it stays.

    Exit code: 0 when it was ended after it was ready; 128 and the signal's number when it was ended before; 1 when it
    failed; 2 when a setting is not valid.
    """
    wanted = [
        isolation
        for isolation, asked in (
            (Isolation.RECORDS, records),
            (Isolation.PLAIN, plain),
            (Isolation.USER, user_namespace),
        )
        if asked
    ]
    if len(wanted) > 1:
        raise click.UsageError("--records, --plain and --user-namespace exclude each other: name one of them.")
    switches = parse_switches(pairs)
    if idle_seconds is not None:
        switches["idle_seconds"] = idle_seconds
    if cold_after_seconds is not None:
        switches["cold_after_seconds"] = cold_after_seconds
    settings = build_settings(
        port=port,
        tokens=tokens,
        isolation=wanted[0] if wanted else Isolation.AUTO,
        switches=switches,
        random_lies=random_lies,
    )
    ready = asyncio.Event()
    received = asyncio.run(run_until_signalled(serve(settings, ready, as_json=as_json)))
    return 0 if received is None or ready.is_set() else 128 + received
