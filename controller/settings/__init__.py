"""
The environment, read once and in one place.

Problem: a process that stops at the first bad setting makes its owner start it once per fault, and one that reads the
environment wherever it likes cannot be tested or described. Promise: this is the only module that reads it; every
variable stands in one table, from which the help and docs/settings.md are rendered; all faults are told at once, each
with its name, its value (never a secret's), its rule and a way out; a name that nobody knows is told with the nearest
known one.

What is set lives beside what it sets, as frozen values; this module only reads.
"""

import difflib
import ipaddress
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

from controller.client.settings import AttachSettings
from controller.engine.settings import EngineSettings, ResyncSettings
from controller.errors import AgentTerminalError
from controller.gateway.settings import GatewaySettings, LimitSettings, TlsFiles
from controller.gateway.stream_settings import StreamSettings
from controller.logs import LogSettings
from controller.plan.hold_settings import HoldField, HoldSettings, resolve_hold
from controller.plan.lease import LeaseTimes
from controller.settings.rules import Misread
from controller.settings.table import (
    ATTACH_CA_FILE,
    ATTACH_DETACH_KEYS,
    ATTACH_SERVICE,
    ATTACH_URL,
    CACHE,
    DEBUG,
    ELECTION,
    GATEWAY_ADDRESS,
    GATEWAY_ADDRESS_REQUESTS_PER_SECOND,
    GATEWAY_AUDIENCES,
    GATEWAY_HOSTS,
    GATEWAY_IDLE_SECONDS,
    GATEWAY_METRICS_ADDRESS,
    GATEWAY_METRICS_PORT,
    GATEWAY_ORIGINS,
    GATEWAY_OWN_AUDIENCE_ONLY,
    GATEWAY_PERSON_SOCKETS,
    GATEWAY_PLAIN_ANYWHERE,
    GATEWAY_PORT,
    GATEWAY_SOCKETS,
    GATEWAY_TLS_CERT_FILE,
    GATEWAY_TLS_KEY_FILE,
    HOLD_EXPIRE_SECONDS,
    HOLD_REFRESH_MS,
    LEASE_DURATION_SECONDS,
    LEASE_NAME,
    LEASE_NAMESPACE,
    LEASE_RENEW_SECONDS,
    LEASE_RETRY_SECONDS,
    LOG_FORMAT,
    LOG_LEVEL,
    METADATA_SECONDS,
    METRICS_ADDRESS,
    METRICS_NAMES,
    METRICS_PORT,
    NAMESPACES,
    OWN_TOKEN_NAMESPACES,
    OWN_TOKEN_SPRITES,
    PREFIX,
    RESYNC_SECONDS,
    SPRITES_REQUESTS_PER_SECOND,
    SPRITES_TOKEN,
    SPRITES_TOKEN_FILE,
    SPRITES_URL,
    VARIABLES,
    WORKERS,
    Variable,
)
from controller.sprites.settings import SpritesSettings
from controller.sprites.token import Token

T = TypeVar("T")


def environment() -> Mapping[str, str]:
    """Give the environment of this process: the only door to it."""
    return os.environ


@dataclass(frozen=True, slots=True)
class TokenFile:
    """The operator's own Sprites token lies in a file, which is read again whenever it changes."""

    path: Path


@dataclass(frozen=True, slots=True)
class OwnTokenSettings:
    """The operator's own Sprites token, and whom it serves: a namespace and a sprite name must each match a pattern."""

    source: TokenFile | Token
    namespaces: tuple[str, ...] = ()
    sprites: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ElectionSettings:
    """By which Lease one of several operators leads."""

    namespace: str | None
    """None: where we are logged in."""
    name: str
    times: LeaseTimes


@dataclass(frozen=True, slots=True)
class Remark:
    """Something that stops nobody and should be known: the caller logs it."""

    name: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSettings:
    """Everything the operator is told by its environment."""

    sprites: SpritesSettings
    sprites_requests_per_second: int
    own_token: OwnTokenSettings | None
    """None: every object brings its own `tokenSecretRef`."""
    namespaces: tuple[str, ...] | None
    """None: all."""
    metrics_address: str
    metrics_port: int
    """0: any free one."""
    election: ElectionSettings | None
    """None: this operator is alone, and leads at once."""
    lease_namespace: str | None
    """Where the Leases of gateways lie, as its own does; None: where we are logged in."""
    engine: EngineSettings
    log: LogSettings
    hold: HoldSettings
    remarks: tuple[Remark, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayProcessSettings:
    """Everything the gateway is told by its environment."""

    gateway: GatewaySettings
    sprites: SpritesSettings
    own_token: OwnTokenSettings | None
    """The operator's own token, and whom it serves: the gateway keeps to the same list."""
    log: LogSettings
    streams: StreamSettings = field(default_factory=StreamSettings)
    namespaces: tuple[str, ...] | None = None
    """Whose terminals are served; None is all."""
    lease_namespace: str | None = None
    """Where the Leases of gateways lie; None is the process's own."""
    remarks: tuple[Remark, ...] = ()


@dataclass(frozen=True, slots=True)
class Fault:
    """One variable that cannot be used."""

    name: str
    shown: str | None
    """The value as it may be shown; None where it may not, or where there is none."""
    rule: str
    way_out: str

    def __str__(self) -> str:
        given = f" is {self.shown}, but" if self.shown is not None else ""
        return f"{self.name}{given} {self.rule}. {self.way_out}"


class SettingsFaulty(AgentTerminalError):
    """The environment cannot be used as it is; every fault is named."""

    def __init__(self, faults: tuple[Fault, ...]) -> None:
        super().__init__("\n".join(str(fault) for fault in faults))
        self.faults = faults


class _Reading:
    """One pass over the environment that gathers faults instead of stopping at the first."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.faults: list[Fault] = []

    def is_set(self, variable: Variable[Any]) -> bool:
        return bool(self._environ.get(variable.name))

    def text(self, variable: Variable[str]) -> str | None:
        """Give the text as it was written, an empty one included."""
        return self._environ.get(variable.name)

    def optional(self, variable: Variable[T]) -> T | None:
        """Read a value; the default where it is not set, or faulty."""
        text = self._environ.get(variable.name, "")
        if not text:
            return variable.default
        try:
            return variable.rule.read(text)
        except Misread:
            shown = None if variable.hidden else _show(text)
            self.refuse(
                variable, f"must be {variable.rule.sentence}", f"Unset it for: {variable.default_words}.", shown
            )
            return variable.default

    def required(self, variable: Variable[T]) -> T:
        """Read a value that has a default."""
        value = self.optional(variable)
        if value is None:
            raise TypeError(f"{variable.name} has no default.")
        return value

    def refuse(self, variable: Variable[Any], rule: str, way_out: str, shown: str | None = None) -> None:
        self.faults.append(Fault(variable.name, shown, rule, way_out))


def read_operator_settings(environ: Mapping[str, str]) -> OperatorSettings:
    """
    Read everything the operator is told, or tell everything that is wrong with it.

    The two numbers of a hold are never a fault: what does not count falls back and is a remark.

    Raises:
        SettingsFaulty: When any variable breaks its rule, or two contradict each other.
    """
    reading = _Reading(environ)
    hold = resolve_hold(reading.text(HOLD_EXPIRE_SECONDS), reading.text(HOLD_REFRESH_MS))
    own_token = _read_own_token(reading)
    reading.required(DEBUG)
    settings = OperatorSettings(
        sprites=SpritesSettings(base_url=reading.required(SPRITES_URL)),
        sprites_requests_per_second=reading.required(SPRITES_REQUESTS_PER_SECOND),
        own_token=own_token,
        namespaces=reading.optional(NAMESPACES),
        metrics_address=reading.required(METRICS_ADDRESS),
        metrics_port=reading.required(METRICS_PORT),
        election=_read_election(reading),
        lease_namespace=reading.optional(LEASE_NAMESPACE),
        engine=EngineSettings(
            workers=reading.required(WORKERS),
            metadata_interval=timedelta(seconds=reading.required(METADATA_SECONDS)),
            metrics_names=reading.required(METRICS_NAMES),
            resync=ResyncSettings(interval=timedelta(seconds=reading.required(RESYNC_SECONDS))),
        ),
        log=LogSettings(level=reading.required(LOG_LEVEL), format=reading.required(LOG_FORMAT)),
        hold=hold,
        remarks=(*_remark_unknown(environ), *_remark_hold(hold, environ)),
    )
    if reading.faults:
        raise SettingsFaulty(tuple(reading.faults))
    return settings


def read_gateway_settings(environ: Mapping[str, str]) -> GatewayProcessSettings:
    """
    Read everything the gateway is told, or tell everything that is wrong with it.

    Raises:
        SettingsFaulty: When any variable breaks its rule, or two contradict each other.
    """
    reading = _Reading(environ)
    own_token = _read_own_token(reading)
    reading.required(DEBUG)
    sprites = SpritesSettings(base_url=reading.required(SPRITES_URL))
    log = LogSettings(level=reading.required(LOG_LEVEL), format=reading.required(LOG_FORMAT))
    address, plain = reading.required(GATEWAY_ADDRESS), reading.required(GATEWAY_PLAIN_ANYWHERE)
    tls = _read_tls(reading)
    is_secret = tls is not None or plain or ipaddress.ip_address(address).is_loopback
    if not is_secret and not reading.faults:
        reading.refuse(
            GATEWAY_TLS_CERT_FILE,
            f"must be set where {GATEWAY_ADDRESS.name} is not loopback",
            f"Name the certificate and its key, or set {GATEWAY_PLAIN_ANYWHERE.name}=1 where something in front ends "
            "TLS.",
        )
    per_second, sockets = reading.required(GATEWAY_ADDRESS_REQUESTS_PER_SECOND), reading.required(GATEWAY_SOCKETS)
    limits = LimitSettings(
        address_requests_per_second=per_second,
        address_burst=3 * per_second,
        person_sockets=reading.required(GATEWAY_PERSON_SOCKETS),
        sockets=sockets,
        connections=2 * sockets,
    )
    numbers = (reading.required(GATEWAY_PORT), reading.required(GATEWAY_METRICS_PORT))
    lists = [reading.required(variable) for variable in (GATEWAY_HOSTS, GATEWAY_ORIGINS, GATEWAY_AUDIENCES)]
    namespaces, lease_namespace = reading.optional(NAMESPACES), reading.optional(LEASE_NAMESPACE)
    idle_limit = timedelta(seconds=reading.required(GATEWAY_IDLE_SECONDS))
    metrics_address, is_strict = reading.required(GATEWAY_METRICS_ADDRESS), reading.required(GATEWAY_OWN_AUDIENCE_ONLY)
    if reading.faults:
        raise SettingsFaulty(tuple(reading.faults))
    gateway = GatewaySettings(
        address=address,
        port=numbers[0],
        metrics_address=metrics_address,
        metrics_port=numbers[1],
        tls=tls,
        plain_anywhere=plain,
        hosts=lists[0],
        origins=lists[1],
        audiences=lists[2],
        own_audience_only=is_strict,
        limits=limits,
    )
    return GatewayProcessSettings(
        gateway=gateway,
        sprites=sprites,
        own_token=own_token,
        log=log,
        streams=StreamSettings(idle_limit=idle_limit),
        namespaces=namespaces,
        lease_namespace=lease_namespace,
        remarks=tuple(_remark_unknown(environ)),
    )


def read_attach_settings(environ: Mapping[str, str]) -> AttachSettings:
    """
    Read what a person's client is told where its options do not say it.

    Raises:
        SettingsFaulty: When any variable breaks its rule.
    """
    reading = _Reading(environ)
    settings = AttachSettings(
        url=reading.optional(ATTACH_URL),
        service=reading.optional(ATTACH_SERVICE),
        ca_file=reading.optional(ATTACH_CA_FILE),
        detach_keys=reading.required(ATTACH_DETACH_KEYS),
    )
    if reading.faults:
        raise SettingsFaulty(tuple(reading.faults))
    return settings


def read_cache_folder(environ: Mapping[str, str]) -> Path:
    """
    Give the folder for what the lab builds and keeps.

    Raises:
        SettingsFaulty: When the variable is no absolute path.
    """
    reading = _Reading(environ)
    chosen = reading.optional(CACHE)
    if reading.faults:
        raise SettingsFaulty(tuple(reading.faults))
    if chosen is not None:
        return chosen
    home = environ.get("XDG_CACHE_HOME", "")
    return (Path(home) if home.startswith("/") else Path.home() / ".cache") / "agentterminal"


def is_debug(environ: Mapping[str, str]) -> bool:
    """Tell whether an unexpected failure shows its place in the code; a bad value counts as no."""
    return _Reading(environ).required(DEBUG)


def _read_own_token(reading: _Reading) -> OwnTokenSettings | None:
    file, text = reading.optional(SPRITES_TOKEN_FILE), reading.optional(SPRITES_TOKEN)
    if reading.is_set(SPRITES_TOKEN_FILE) and reading.is_set(SPRITES_TOKEN):
        reading.refuse(
            SPRITES_TOKEN, f"must not be set together with {SPRITES_TOKEN_FILE.name}", "Unset one of the two."
        )
    scopes = (OWN_TOKEN_NAMESPACES, OWN_TOKEN_SPRITES)
    namespaces, sprites = (reading.required(variable) for variable in scopes)
    given = [variable for variable in scopes if reading.is_set(variable)]
    if len(given) == 1:
        other = next(variable for variable in scopes if variable is not given[0])
        reading.refuse(
            other,
            f"must be set where {given[0].name} is",
            "Set both (* stands for all), or neither: one serves nobody.",
        )
    if given and not (reading.is_set(SPRITES_TOKEN_FILE) or reading.is_set(SPRITES_TOKEN)):
        reading.refuse(
            SPRITES_TOKEN_FILE, f"must be set where {given[0].name} is", "Name the token's file, or unset the patterns."
        )
    source = TokenFile(file) if file is not None else text
    return OwnTokenSettings(source, namespaces, sprites) if source is not None else None


def _read_election(reading: _Reading) -> ElectionSettings | None:
    """Read how leaders are elected; the times must leave whoever loses the Lease the time to stop."""
    duration, deadline, retry = (
        reading.required(variable) for variable in (LEASE_DURATION_SECONDS, LEASE_RENEW_SECONDS, LEASE_RETRY_SECONDS)
    )
    namespace, name = reading.optional(LEASE_NAMESPACE), reading.required(LEASE_NAME)
    is_fit = True
    if deadline < 2 * retry:
        rule = f"must be at least twice {LEASE_RETRY_SECONDS.name}, which is {retry}"
        reading.refuse(
            LEASE_RENEW_SECONDS, rule, f"Set it to {2 * retry} or more, or the other lower.", _show(str(deadline))
        )
        is_fit = False
    if 2 * duration < 3 * deadline:
        rule = f"must be at least one and a half times {LEASE_RENEW_SECONDS.name}, which is {deadline}"
        least = -(-3 * deadline // 2)
        way_out = f"Set it to {least} or more, or the other lower."
        reading.refuse(LEASE_DURATION_SECONDS, rule, way_out, _show(str(duration)))
        is_fit = False
    if not is_fit or not reading.required(ELECTION):
        return None
    seconds = (timedelta(seconds=number) for number in (duration, deadline, retry))
    return ElectionSettings(namespace, name, LeaseTimes(*seconds))


def _read_tls(reading: _Reading) -> TlsFiles | None:
    certificate, key = reading.optional(GATEWAY_TLS_CERT_FILE), reading.optional(GATEWAY_TLS_KEY_FILE)
    pair = (GATEWAY_TLS_CERT_FILE, GATEWAY_TLS_KEY_FILE)
    given = [variable for variable in pair if reading.is_set(variable)]
    if len(given) == 1:
        (missing,) = (variable for variable in pair if variable not in given)
        reading.refuse(missing, f"must be set where {given[0].name} is", "Set both, or neither for plain HTTP.")
    return TlsFiles(certificate, key) if certificate is not None and key is not None else None


def _remark_unknown(environ: Mapping[str, str]) -> Iterable[Remark]:
    """Tell names with our prefix that nobody knows, with the nearest one; Kubernetes' own service links are no typo."""
    names = [variable.name for variable in VARIABLES]
    endings = [name.removeprefix(PREFIX) for name in names]
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name in names or _SERVICE_LINK.search(name):
            continue
        nearest = difflib.get_close_matches(name.removeprefix(PREFIX), endings, n=1)
        hint = f"Did you mean {PREFIX}{nearest[0]}?" if nearest else "`agentterminal operator --help` lists all."
        yield Remark(name, f"{name} is not a setting and is ignored. {hint}")


_SERVICE_LINK: Final = re.compile(r"_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_\w+)?|PORT)\Z")

_TOKEN: Final = re.compile(r"\A[\w.-]+/\d+/[^/\s]+/[^/\s]+|eyJ[\w-]{8}|(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[\w-]{32}")
"""What may be a token in the wrong place: of Sprites, of a service account, or a long run of letters and digits."""


def _remark_hold(hold: HoldSettings, environ: Mapping[str, str]) -> Iterable[Remark]:
    for fallback in hold.fallbacks:
        match fallback.field:
            case HoldField.EXPIRE:
                name, used = HOLD_EXPIRE_SECONDS.name, f"{fallback.used // timedelta(seconds=1)}"
            case HoldField.REFRESH:
                name, used = HOLD_REFRESH_MS.name, f"{fallback.used // timedelta(milliseconds=1)}"
        yield Remark(name, f"{name} is {_show(environ[name])}, which is not {fallback.rule}; {used} is used.")


def _show(text: str) -> str:
    """Show a value in quotes, short, on one line; one that may hold a password, or may be a token, is not shown."""
    if ("://" in text and ("@" in text or "?" in text)) or _TOKEN.search(text):
        return "(not shown, it may hold a secret)"
    return ascii(text if len(text) <= 80 else text[:77] + "...")
