"""
What each alert is for, as samples: series under which it fires, and neighbours of them under which it must not.

The notation of the samples is promtool's: `1+2x3` is 1, 3, 5, 7, one a minute; `_` is none, `stale` the end.
"""

from dataclasses import dataclass
from typing import Final

HERE: Final = 'namespace="team", job="op"'


def series(name: str, labels: str, values: str) -> dict[str, str]:
    """One series of the job that the alerts are about."""
    inside = ", ".join(part for part in (labels, HERE) if part)
    return {f"agentterminal_{name}{{{inside}}}": values}


@dataclass(frozen=True)
class Fires:
    """Series under which an alert fires."""

    series: dict[str, str]
    at: str
    description: str
    labels: tuple[tuple[str, str], ...] = (("namespace", "team"), ("job", "op"))
    """What it carries besides its severity."""


@dataclass(frozen=True)
class Quiet:
    """Series under which it does not, and why not."""

    why: str
    series: dict[str, str]
    at: str


@dataclass(frozen=True)
class Play:
    """All that is played of one alert."""

    fires: tuple[Fires, ...]
    quiet: tuple[Quiet, ...]


def buckets(cause: str, le_5: str, le_10: str) -> dict[str, str]:
    name = "queue_wait_seconds_bucket"
    return {
        **series(name, f'cause="{cause}", le="5"', le_5),
        **series(name, f'cause="{cause}", le="10"', le_10),
        **series(name, f'cause="{cause}", le="+Inf"', le_10),
    }


def visits(failed: str, settled: str) -> dict[str, str]:
    return {
        **series("reconciles_total", 'result="Failed"', failed),
        **series("reconciles_total", 'result="Settled"', settled),
    }


def leaders(one: str, other: str) -> dict[str, str]:
    return {**series("leader", 'instance="a"', one), **series("leader", 'instance="b"', other)}


def sockets(one: str, other: str = "_x100") -> dict[str, str]:
    name = "gateway_sockets"
    return {**series(name, 'instance="a"', one), **series(name, 'instance="b"', other)}


STALLED: Final = 'type="Stalled", status="True"'
NO_LEADER: Final = (
    "No process of the operator holds the Lease, or none is scraped. Nothing is ended, held or launched; holds lapse "
    "within their expiry."
)
NOT_READY: Final = "{} terminals of op are stalled, or have not been ready for half an hour."
UNAUTHORIZED: Final = (
    "The Sprites API answers 401 or 403 to op. Terminals that use that token can neither be ended nor held."
)

PLAYS: Final = {
    "AgentTerminalKillNotConfirmed": Play(
        fires=(
            Fires(
                series("kill_oldest_seconds", "", "660x12"),
                "3m",
                "The oldest kill of op has waited 11m 0s for its proof. Its session may still run and cost money, and "
                "a deleted object keeps its finalizer.",
            ),
        ),
        quiet=(
            Quiet("ten minutes are not more than ten", series("kill_oldest_seconds", "", "600x12"), "10m"),
            Quiet("the proof has come", series("kill_oldest_seconds", "", "660 660 0x10"), "4m"),
        ),
    ),
    "AgentTerminalHoldWithoutActivity": Play(
        fires=(
            Fires(
                series("hold_idle_seconds", 'cause="Viewer"', "4200x20"),
                "11m",
                "A terminal of op is held for cause Viewer and has shown no activity for 1h 10m 0s. Its sprite is "
                "billed all the while.",
                (("namespace", "team"), ("job", "op"), ("cause", "Viewer")),
            ),
        ),
        quiet=(
            Quiet("an hour is not more than one", series("hold_idle_seconds", 'cause="Always"', "3600x20"), "20m"),
            Quiet("there was activity", series("hold_idle_seconds", 'cause="Viewer"', "4200x5 0x20"), "15m"),
        ),
    ),
    "AgentTerminalHoldFailing": Play(
        fires=(
            Fires(
                {
                    **series("holds", 'state="Missing", cause="Activity"', "2x10"),
                    **series("holds", 'state="Unclear", cause="Viewer"', "1x10"),
                },
                "2m",
                "3 terminals of op have work and no task that is known to hold their sprite. It may pause under them.",
            ),
        ),
        quiet=(
            Quiet("all are held", series("holds", 'state="Held", cause="Activity"', "2x10"), "10m"),
            Quiet("it was held within a minute", series("holds", 'state="Missing", cause="Viewer"', "1 0x10"), "3m"),
        ),
    ),
    "AgentTerminalSpritesUnauthorized": Play(
        fires=(
            Fires(series("objects", 'situation="TokenRejected"', "1x20"), "6m", UNAUTHORIZED),
            Fires(series("objects", 'situation="TokenForbidden"', "1x20"), "6m", UNAUTHORIZED),
            Fires(series("sprites_calls_total", 'outcome="Unauthorized"', "0+1x20"), "11m", UNAUTHORIZED),
        ),
        quiet=(
            Quiet("no Secret is no refusal", series("objects", 'situation="SecretNotFound"', "1x20"), "10m"),
            Quiet("a 404 is no refusal", series("sprites_calls_total", 'outcome="NotFound"', "0+1x20"), "15m"),
            Quiet("it was refused long ago", series("sprites_calls_total", 'outcome="Unauthorized"', "7x20"), "15m"),
            Quiet("it was a rotation", series("objects", 'situation="TokenRejected"', "1 1 0x20"), "8m"),
        ),
    ),
    "AgentTerminalBreakerOpen": Play(
        fires=(
            Fires(
                series("breakers_open", "", "2x10"),
                "3m",
                "2 tokens of op see an incident of the Sprites API. Kills wait, and finalizers stay.",
            ),
        ),
        quiet=(Quiet("the next list closed it", series("breakers_open", "", "1 1 0x10"), "4m"),),
    ),
    "AgentTerminalWatchStale": Play(
        fires=(
            Fires(
                series("watch_age_seconds", "", "120x10"),
                "2m",
                "The watch of op is behind, or could not be checked, for 2m 0s. What people change is not acted on.",
            ),
            Fires(
                series("watch_unchecked_seconds", "", "720x10"),
                "2m",
                "The watch of op is behind, or could not be checked, for 12m 0s. What people change is not acted on.",
            ),
        ),
        quiet=(
            Quiet("it is a little behind", series("watch_age_seconds", "", "90x10"), "8m"),
            Quiet("ten minutes are not more than ten", series("watch_unchecked_seconds", "", "600x10"), "8m"),
        ),
    ),
    "AgentTerminalNobodyLeads": Play(
        fires=(
            Fires(leaders("0x10", "0x10"), "3m", NO_LEADER),
            Fires(series("build_info", "", "1x10"), "3m", NO_LEADER, ()),
        ),
        quiet=(
            Quiet("one leads and one stands by", leaders("0x10", "1x10"), "5m"),
            Quiet("one took over from the other", leaders("1 0 0x10", "0 0 1x10"), "4m"),
        ),
    ),
    "AgentTerminalTerminalsNotReady": Play(
        fires=(
            Fires(series("conditions", STALLED, "3x30"), "16m", NOT_READY.format(3)),
            Fires(series("stuck_seconds", 'terminal="a", reason="Pending"', "2000x30"), "16m", NOT_READY.format(1)),
        ),
        quiet=(
            Quiet("they are ready", series("conditions", 'type="Ready", status="True"', "5x30"), "20m"),
            Quiet("none is stalled", series("conditions", 'type="Stalled", status="False"', "5x30"), "20m"),
            Quiet("somebody saw to it", series("conditions", STALLED, "1x10 0x20"), "20m"),
            Quiet("a paused sprite owes it", series("stuck_seconds", 'reason="KillOwed"', "9000x30"), "20m"),
            Quiet("it is under way", series("stuck_seconds", 'reason="Starting"', "1800x30"), "20m"),
        ),
    ),
    "AgentTerminalReconcileErrors": Play(
        fires=(
            Fires(
                visits("0+6x40", "0+6x40"),
                "25m",
                "50% of the visits of op fail: an outside call does not succeed, or there is a bug.",
            ),
        ),
        quiet=(
            Quiet("one in a hundred fails", visits("0+1x40", "0+99x40"), "25m"),
            Quiet("four have failed, and hardly any were made", visits("0+0.4x40", "0+1x40"), "25m"),
        ),
    ),
    "AgentTerminalQueueWaiting": Play(
        fires=(
            Fires(
                buckets("queue", "0x40", "0+6x40"),
                "25m",
                "One due visit in a hundred of op waits 9.95s or longer. Ends and holds come late.",
            ),
        ),
        quiet=(
            Quiet("a back-off is meant", buckets("backoff", "0x40", "0+6x40"), "25m"),
            Quiet("all begin in time", buckets("queue", "0+6x40", "0+6x40"), "25m"),
        ),
    ),
    "AgentTerminalStaleFrames": Play(
        fires=(
            Fires(
                series("gateway_frames_refused_total", 'cause="Stale"', "0+20x30"),
                "12m",
                "op refused 100 frames within five minutes because the right to type was gone. None of them reached a "
                "session.",
            ),
        ),
        quiet=(
            Quiet("a takeover", series("gateway_frames_refused_total", 'cause="Stale"', "0 0 5 5x30"), "6m"),
            Quiet("a paste at a takeover", series("gateway_frames_refused_total", 'cause="Stale"', "0 0 60x30"), "12m"),
            Quiet("a viewer's keys", series("gateway_frames_refused_total", 'cause="Viewer"', "0+20x30"), "12m"),
        ),
    ),
    "AgentTerminalGatewayDown": Play(
        fires=(
            Fires(
                sockets("3x5 stale", "0x5 stale"),
                "9m",
                "No replica of op can be scraped. Nobody can attach through it; sessions live on, and viewers that it "
                "counted end with its Leases.",
            ),
        ),
        quiet=(
            Quiet("it is only just gone", sockets("3x5 stale"), "7m"),
            Quiet("one replica is left", sockets("3x5 stale", "0x20"), "9m"),
            Quiet("it was taken away long ago", sockets("3x5 stale"), "90m"),
            Quiet("it is rolled out anew", sockets("3x5 stale", "_ _ _ _ _ _ _ 0x20"), "9m"),
            Quiet("there never was one", series("leader", "", "1x20"), "15m"),
        ),
    ),
}
