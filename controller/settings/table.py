"""The table of all variables, from which they are read, and from which help and page are rendered."""

import textwrap
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Generic, TypeVar

from controller.client.keys import DEFAULT_KEYS
from controller.gateway.settings import LOOPBACK_HOSTS, OWN_AUDIENCE
from controller.logs import LogFormat, LogLevel
from controller.settings.rules import (
    ABSOLUTE_PATH,
    ADDRESS,
    AUDIENCES,
    HOSTS,
    KEYS,
    NAME,
    NAMES,
    NAMESPACE,
    ORIGINS,
    PATTERNS,
    SERVICE,
    SWITCH,
    TOKEN,
    URL,
    Rule,
    one_of,
    whole_number,
)
from controller.sprites.settings import DEFAULT_BASE_URL

T = TypeVar("T")

PREFIX: Final = "AGENTTERMINAL_"


class Reader(StrEnum):
    """Who reads a variable."""

    OPERATOR = "operator"
    GATEWAY = "gateway"
    BOTH = "operator, gateway"
    ATTACH = "attach"
    LAB = "lab"
    EVERY_COMMAND = "every command"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable(Generic[T]):
    """One variable. An empty text counts as not set."""

    name: str
    rule: Rule[T]
    default: T | None
    default_words: str
    meaning: str
    reader: Reader = Reader.OPERATOR
    hidden: bool = False
    """Its value is never shown: it is a secret, or people put one there by mistake."""


SPRITES_URL: Final = Variable(
    name=f"{PREFIX}SPRITES_URL",
    rule=URL,
    default=DEFAULT_BASE_URL,
    default_words=DEFAULT_BASE_URL,
    meaning="Where the Sprites API is.",
    reader=Reader.BOTH,
)
SPRITES_TOKEN_FILE: Final = Variable(
    name=f"{PREFIX}SPRITES_TOKEN_FILE",
    rule=ABSOLUTE_PATH,
    default=None,
    default_words="none",
    meaning="The file with the operator's own Sprites token; it may change while the operator runs. "
    "It serves only what the two variables `AGENTTERMINAL_OWN_TOKEN_...` name.",
    reader=Reader.BOTH,
    hidden=True,
)
SPRITES_TOKEN: Final = Variable(
    name=f"{PREFIX}SPRITES_TOKEN",
    rule=TOKEN,
    default=None,
    default_words="none",
    meaning="The operator's own Sprites token itself. Discouraged: an environment is easily shown and cannot change; "
    "prefer the file.",
    reader=Reader.BOTH,
    hidden=True,
)
OWN_TOKEN_NAMESPACES: Final = Variable(
    name=f"{PREFIX}OWN_TOKEN_NAMESPACES",
    rule=PATTERNS,
    default=(),
    default_words="none",
    meaning="Namespaces whose objects may do without a `tokenSecretRef` and use the operator's own token.",
    reader=Reader.BOTH,
)
OWN_TOKEN_SPRITES: Final = Variable(
    name=f"{PREFIX}OWN_TOKEN_SPRITES",
    rule=PATTERNS,
    default=(),
    default_words="none",
    meaning="Names of sprites that such objects may name.",
    reader=Reader.BOTH,
)
NAMESPACES: Final = Variable(
    name=f"{PREFIX}NAMESPACES",
    rule=NAMES,
    default=None,
    default_words="all",
    meaning="The namespaces to watch; of a gateway, those whose terminals it serves.",
    reader=Reader.BOTH,
)
METRICS_ADDRESS: Final = Variable(
    name=f"{PREFIX}METRICS_ADDRESS",
    rule=ADDRESS,
    default="127.0.0.1",
    default_words="127.0.0.1",
    meaning="Where `/metrics`, `/healthz` and `/readyz` are served; in a pod 0.0.0.0 or ::.",
)
METRICS_PORT: Final = Variable(
    name=f"{PREFIX}METRICS_PORT",
    rule=whole_number(0, 65_535),
    default=9464,
    default_words="9464",
    meaning="The port of the same; 0 takes any free one and logs it.",
)
METRICS_NAMES: Final = Variable(
    name=f"{PREFIX}METRICS_NAMES",
    rule=whole_number(0, 1_000),
    default=20,
    default_words="20",
    meaning="How many objects that are not ready `agentterminal_stuck_seconds` names, those first that have waited "
    "longest; 0 names none.",
)
ELECTION: Final = Variable(
    name=f"{PREFIX}ELECTION",
    rule=SWITCH,
    default=True,
    default_words="1",
    meaning="0 runs without a Lease: only for an operator that certainly has no second beside it, not even for the "
    "moment of a restart. Two without election both work on the same objects.",
)
LEASE_NAMESPACE: Final = Variable(
    name=f"{PREFIX}LEASE_NAMESPACE",
    rule=NAMESPACE,
    default=None,
    default_words="the pod's own; outside of a pod that of the kubeconfig's context, else `default`",
    meaning="The namespace of the Lease by which one of several operators leads, and of the Leases of gateways.",
    reader=Reader.BOTH,
)
LEASE_NAME: Final = Variable(
    name=f"{PREFIX}LEASE_NAME",
    rule=NAME,
    default="agentterminal-operator",
    default_words="agentterminal-operator",
    meaning="The name of that Lease. Operators that watch the same objects must share one.",
)
LEASE_DURATION_SECONDS: Final = Variable(
    name=f"{PREFIX}LEASE_DURATION_SECONDS",
    rule=whole_number(3, 300),
    default=15,
    default_words="15",
    meaning="For so long after the leader was last seen to renew, nobody takes its place; at least one and a half "
    "times the renew deadline.",
)
LEASE_RENEW_SECONDS: Final = Variable(
    name=f"{PREFIX}LEASE_RENEW_SECONDS",
    rule=whole_number(2, 200),
    default=10,
    default_words="10",
    meaning="The leader stops for good when none of its renewals was answered for so long; at least twice the retry.",
)
LEASE_RETRY_SECONDS: Final = Variable(
    name=f"{PREFIX}LEASE_RETRY_SECONDS",
    rule=whole_number(1, 100),
    default=2,
    default_words="2",
    meaning="How often the leader renews and the others look, and how long one such call may take.",
)
WORKERS: Final = Variable(
    name=f"{PREFIX}WORKERS",
    rule=whole_number(1, 256),
    default=16,
    default_words="16",
    meaning="How many objects are worked on at the same time.",
)
SPRITES_REQUESTS_PER_SECOND: Final = Variable(
    name=f"{PREFIX}SPRITES_REQUESTS_PER_SECOND",
    rule=whole_number(1, 10_000),
    default=100,
    default_words="100",
    meaning="How many calls a second go to the Sprites API per token; kills have a reserve of their own within it.",
)
METADATA_SECONDS: Final = Variable(
    name=f"{PREFIX}METADATA_SECONDS",
    rule=whole_number(1, 3600),
    default=30,
    default_words="30",
    meaning="How often the list of a token's sprites is read.",
)
RESYNC_SECONDS: Final = Variable(
    name=f"{PREFIX}RESYNC_SECONDS",
    rule=whole_number(10, 3600),
    default=120,
    default_words="120",
    meaning="How often everything known is compared with a fresh list of the API server.",
)
LOG_LEVEL: Final = Variable(
    name=f"{PREFIX}LOG_LEVEL",
    rule=one_of(LogLevel),
    default=LogLevel.INFO,
    default_words="info",
    meaning="How much is logged: `info` is a change of state, `debug` the steady state as well.",
    reader=Reader.BOTH,
)
LOG_FORMAT: Final = Variable(
    name=f"{PREFIX}LOG_FORMAT",
    rule=one_of(LogFormat),
    default=LogFormat.TEXT,
    default_words="text",
    meaning="`text` for people, `json` for machines: one object per line.",
    reader=Reader.BOTH,
)
HOLD_EXPIRE_SECONDS: Final = Variable(
    name=f"{PREFIX}HOLD_EXPIRE_SECONDS",
    rule=Rule("a whole number from 1 to 3,600; anything else counts as 300, and is logged", str),
    default=None,
    default_words="300",
    meaning="How long a hold lives when nobody renews it, where the object does not say.",
)
HOLD_REFRESH_MS: Final = Variable(
    name=f"{PREFIX}HOLD_REFRESH_MS",
    rule=Rule("a whole number from 1 to half the expiry; anything else counts as the default, and is logged", str),
    default=None,
    default_words="60000, or a fifth of the expiry where that is less",
    meaning="How often a hold is renewed, where the object does not say.",
)
GATEWAY_ADDRESS: Final = Variable(
    name=f"{PREFIX}GATEWAY_ADDRESS",
    rule=ADDRESS,
    default="127.0.0.1",
    default_words="127.0.0.1",
    meaning="Where the gateway's doors are; in a pod 0.0.0.0 or ::.",
    reader=Reader.GATEWAY,
)
GATEWAY_PORT: Final = Variable(
    name=f"{PREFIX}GATEWAY_PORT",
    rule=whole_number(0, 65_535),
    default=8443,
    default_words="8443",
    meaning="The port of the same; 0 takes any free one and logs it.",
    reader=Reader.GATEWAY,
)
GATEWAY_METRICS_ADDRESS: Final = Variable(
    name=f"{PREFIX}GATEWAY_METRICS_ADDRESS",
    rule=ADDRESS,
    default="127.0.0.1",
    default_words="127.0.0.1",
    meaning="Where the gateway serves `/metrics`; in a pod 0.0.0.0 or ::.",
    reader=Reader.GATEWAY,
)
GATEWAY_METRICS_PORT: Final = Variable(
    name=f"{PREFIX}GATEWAY_METRICS_PORT",
    rule=whole_number(0, 65_535),
    default=9465,
    default_words="9465",
    meaning="The port of the same; 0 takes any free one and logs it.",
    reader=Reader.GATEWAY,
)
GATEWAY_TLS_CERT_FILE: Final = Variable(
    name=f"{PREFIX}GATEWAY_TLS_CERT_FILE",
    rule=ABSOLUTE_PATH,
    default=None,
    default_words="none, which is plain HTTP",
    meaning="The gateway's certificate with its chain, PEM; it may change while the gateway runs. Only with it are "
    "client certificates of the cluster taken.",
    reader=Reader.GATEWAY,
)
GATEWAY_TLS_KEY_FILE: Final = Variable(
    name=f"{PREFIX}GATEWAY_TLS_KEY_FILE",
    rule=ABSOLUTE_PATH,
    default=None,
    default_words="none",
    meaning="The key of the same, PEM, not encrypted.",
    reader=Reader.GATEWAY,
)
GATEWAY_PLAIN_ANYWHERE: Final = Variable(
    name=f"{PREFIX}GATEWAY_PLAIN_ANYWHERE",
    rule=SWITCH,
    default=False,
    default_words="0",
    meaning="1 serves plain HTTP on addresses that others reach, tokens included: only where something in front ends "
    "TLS.",
    reader=Reader.GATEWAY,
)
GATEWAY_HOSTS: Final = Variable(
    name=f"{PREFIX}GATEWAY_HOSTS",
    rule=HOSTS,
    default=LOOPBACK_HOSTS,
    default_words=", ".join(LOOPBACK_HOSTS),
    meaning="Names by which the gateway may be addressed (the `Host` header, without its port); `*` is any.",
    reader=Reader.GATEWAY,
)
GATEWAY_ORIGINS: Final = Variable(
    name=f"{PREFIX}GATEWAY_ORIGINS",
    rule=ORIGINS,
    default=(),
    default_words="none",
    meaning="Pages that may use the gateway (the `Origin` header).",
    reader=Reader.GATEWAY,
)
GATEWAY_AUDIENCES: Final = Variable(
    name=f"{PREFIX}GATEWAY_AUDIENCES",
    rule=AUDIENCES,
    default=(OWN_AUDIENCE,),
    default_words=OWN_AUDIENCE,
    meaning="Audiences of tokens that are meant for the gateway; tokens for the API server itself are taken as well.",
    reader=Reader.GATEWAY,
)
GATEWAY_OWN_AUDIENCE_ONLY: Final = Variable(
    name=f"{PREFIX}GATEWAY_OWN_AUDIENCE_ONLY",
    rule=SWITCH,
    default=False,
    default_words="0",
    meaning="1 refuses tokens for the API server itself, which a kubeconfig's static token is: whoever reads what is "
    "sent to the gateway can then do nothing else with it.",
    reader=Reader.GATEWAY,
)
GATEWAY_ADDRESS_REQUESTS_PER_SECOND: Final = Variable(
    name=f"{PREFIX}GATEWAY_ADDRESS_REQUESTS_PER_SECOND",
    rule=whole_number(1, 100_000),
    default=20,
    default_words="20",
    meaning="How many requests a second one address gets, three times as many at once; behind a proxy all come from "
    "one.",
    reader=Reader.GATEWAY,
)
GATEWAY_PERSON_SOCKETS: Final = Variable(
    name=f"{PREFIX}GATEWAY_PERSON_SOCKETS",
    rule=whole_number(1, 100_000),
    default=50,
    default_words="50",
    meaning="How many sockets one person gets on one replica.",
    reader=Reader.GATEWAY,
)
GATEWAY_SOCKETS: Final = Variable(
    name=f"{PREFIX}GATEWAY_SOCKETS",
    rule=whole_number(1, 100_000),
    default=2_000,
    default_words="2000",
    meaning="How many sockets one replica carries.",
    reader=Reader.GATEWAY,
)
GATEWAY_IDLE_SECONDS: Final = Variable(
    name=f"{PREFIX}GATEWAY_IDLE_SECONDS",
    rule=whole_number(60, 31_536_000),
    default=43_200,
    default_words="43200 (12 h)",
    meaning="How long a socket may say nothing and be told nothing of the terminal before it is ended; the session "
    "goes on, and its own idle time begins once nobody is left.",
    reader=Reader.GATEWAY,
)
ATTACH_URL: Final = Variable(
    name=f"{PREFIX}ATTACH_URL",
    rule=URL,
    default=None,
    default_words="none",
    meaning="Where a person's client finds the gateway, where `--gateway` does not say it.",
    reader=Reader.ATTACH,
)
ATTACH_SERVICE: Final = Variable(
    name=f"{PREFIX}ATTACH_SERVICE",
    rule=SERVICE,
    default=None,
    default_words="none, which finds it by its labels in any namespace",
    meaning="The gateway's Service, to which `kubectl port-forward` makes a way where no address is given.",
    reader=Reader.ATTACH,
)
ATTACH_CA_FILE: Final = Variable(
    name=f"{PREFIX}ATTACH_CA_FILE",
    rule=ABSOLUTE_PATH,
    default=None,
    default_words="none, which is the system's list",
    meaning="Whom to trust for the gateway's certificate, PEM.",
    reader=Reader.ATTACH,
)
ATTACH_DETACH_KEYS: Final = Variable(
    name=f"{PREFIX}ATTACH_DETACH_KEYS",
    rule=KEYS,
    default=DEFAULT_KEYS,
    default_words=DEFAULT_KEYS,
    meaning="What a person types to leave a session that goes on.",
    reader=Reader.ATTACH,
)
CACHE: Final = Variable(
    name=f"{PREFIX}CACHE",
    rule=ABSOLUTE_PATH,
    default=None,
    default_words="agentterminal in the user's cache folder",
    meaning="Where the lab keeps the binaries of its control plane.",
    reader=Reader.LAB,
)
DEBUG: Final = Variable(
    name=f"{PREFIX}DEBUG",
    rule=SWITCH,
    default=False,
    default_words="0",
    meaning="1 shows where in the code an unexpected failure came from.",
    reader=Reader.EVERY_COMMAND,
)

VARIABLES: Final[tuple[Variable[Any], ...]] = (
    SPRITES_URL,
    SPRITES_TOKEN_FILE,
    SPRITES_TOKEN,
    OWN_TOKEN_NAMESPACES,
    OWN_TOKEN_SPRITES,
    NAMESPACES,
    METRICS_ADDRESS,
    METRICS_PORT,
    METRICS_NAMES,
    ELECTION,
    LEASE_NAMESPACE,
    LEASE_NAME,
    LEASE_DURATION_SECONDS,
    LEASE_RENEW_SECONDS,
    LEASE_RETRY_SECONDS,
    WORKERS,
    SPRITES_REQUESTS_PER_SECOND,
    METADATA_SECONDS,
    RESYNC_SECONDS,
    LOG_LEVEL,
    LOG_FORMAT,
    HOLD_EXPIRE_SECONDS,
    HOLD_REFRESH_MS,
    GATEWAY_ADDRESS,
    GATEWAY_PORT,
    GATEWAY_METRICS_ADDRESS,
    GATEWAY_METRICS_PORT,
    GATEWAY_TLS_CERT_FILE,
    GATEWAY_TLS_KEY_FILE,
    GATEWAY_PLAIN_ANYWHERE,
    GATEWAY_HOSTS,
    GATEWAY_ORIGINS,
    GATEWAY_AUDIENCES,
    GATEWAY_OWN_AUDIENCE_ONLY,
    GATEWAY_ADDRESS_REQUESTS_PER_SECOND,
    GATEWAY_PERSON_SOCKETS,
    GATEWAY_SOCKETS,
    GATEWAY_IDLE_SECONDS,
    ATTACH_URL,
    ATTACH_SERVICE,
    ATTACH_CA_FILE,
    ATTACH_DETACH_KEYS,
    CACHE,
    DEBUG,
)


def render_settings_help(process: Reader = Reader.OPERATOR) -> str:
    """Render the table for the `--help` of one process: what it reads, alone or as others do."""
    lines = [f"The {process} is set by its environment:", ""]
    for variable in VARIABLES:
        if variable.reader not in (process, Reader.BOTH, Reader.EVERY_COMMAND):
            continue
        lines.append(variable.name)
        for text in (variable.meaning, f"Must be {variable.rule.sentence}. Default: {variable.default_words}."):
            lines += textwrap.wrap(
                text,
                76,
                initial_indent="    ",
                subsequent_indent="    ",
                break_long_words=False,
                break_on_hyphens=False,
            )
    return "\n".join(lines)


def render_settings_page() -> str:
    """Render docs/settings.md."""
    lines = [
        "# Settings",
        "",
        "Generated by `make crds` from `controller/settings/table.py`; edit that.",
        "",
        (
            "Every setting is an environment variable; an empty one counts as not set. A start with faulty settings "
            "lists all faults and exits with 2. A variable with the prefix `AGENTTERMINAL_` that is not in this table "
            "is logged as a warning with the nearest known name. The numbers of a hold never stop a start: a value "
            "that does not count falls back as the table says, and is logged."
        ),
        "",
        "| Variable | Rule | Default | Read by | Meaning |",
        "| --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| `{variable.name}` | {variable.rule.sentence} | {variable.default_words} | {variable.reader} "
        f"| {variable.meaning}{' Its value is never shown.' if variable.hidden else ''} |"
        for variable in VARIABLES
    ]
    return "\n".join(lines) + "\n"
