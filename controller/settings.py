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
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from controller.engine.settings import EngineSettings, ResyncSettings
from controller.errors import AgentTerminalError
from controller.logs import LogFormat, LogLevel, LogSettings
from controller.plan.hold_settings import HoldField, HoldSettings, resolve_hold
from controller.sprites.settings import DEFAULT_BASE_URL, SpritesSettings, judge_base_url
from controller.sprites.token import Token, TokenUnreadable

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)

PREFIX: Final = "AGENTTERMINAL_"


def environment() -> Mapping[str, str]:
    """Give the environment of this process: the only door to it."""
    return os.environ


# --- What was read ---------------------------------------------------------------------------------------------------


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
    engine: EngineSettings
    log: LogSettings
    hold: HoldSettings
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


# --- How a value is written ------------------------------------------------------------------------------------------


class _Misread(Exception):
    """The text does not follow the rule."""


@dataclass(frozen=True, slots=True)
class Rule(Generic[T]):
    """How one kind of value is written. The sentence completes "must be ..."."""

    sentence: str
    read: Callable[[str], T]
    """Raises `_Misread`."""


def _is_number(least: int, most: int) -> Rule[int]:
    def read(text: str) -> int:
        if re.fullmatch(r"[0-9]{1,9}", text, re.ASCII) and least <= int(text) <= most:
            return int(text)
        raise _Misread

    return Rule(f"a whole number from {least:,} to {most:,}, without a unit", read)


def _is_one_of(words: type[E]) -> Rule[E]:
    def read(text: str) -> E:
        try:
            return words(text.lower())
        except ValueError:
            raise _Misread from None

    return Rule("one of " + ", ".join(words), read)


def _is_list_of(pattern: str, sentence: str) -> Rule[tuple[str, ...]]:
    def read(text: str) -> tuple[str, ...]:
        items = tuple(item.strip() for item in text.split(","))
        if all(re.fullmatch(pattern, item, re.ASCII) for item in items):
            return items
        raise _Misread

    return Rule(sentence, read)


def _read_url(text: str) -> str:
    if judge_base_url(text) is not None:
        raise _Misread
    return text


def _read_address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise _Misread from None


def _read_path(text: str) -> Path:
    if not text.startswith("/") or not text.isprintable():
        raise _Misread
    return Path(text)


def _read_token(text: str) -> Token:
    try:
        return Token.read(text)
    except TokenUnreadable:
        raise _Misread from None


def _read_switch(text: str) -> bool:
    if text in ("0", "1"):
        return text == "1"
    raise _Misread


_NAMES: Final = _is_list_of(
    r"(?=.{1,63}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?", "names of namespaces (a-z, 0-9 and -), separated by commas"
)
_PATTERNS: Final = _is_list_of(
    r"[-a-z0-9*?]{1,63}", "patterns of a-z, 0-9, -, * (anything) and ? (one character), separated by commas"
)
_URL: Final = Rule("an https address without user, password, query and fragment (http only to this machine)", _read_url)
_ADDRESS: Final = Rule("an IP address of this machine", _read_address)
_PATH: Final = Rule("an absolute path", _read_path)
_TOKEN: Final = Rule("a token in ASCII, without white space and control characters", _read_token)
_SWITCH: Final = Rule("0 or 1", _read_switch)


# --- The table -------------------------------------------------------------------------------------------------------


class Reader(StrEnum):
    """Who reads a variable."""

    OPERATOR = "operator"
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
    rule=_URL,
    default=DEFAULT_BASE_URL,
    default_words=DEFAULT_BASE_URL,
    meaning="Where the Sprites API is.",
)
SPRITES_TOKEN_FILE: Final = Variable(
    name=f"{PREFIX}SPRITES_TOKEN_FILE",
    rule=_PATH,
    default=None,
    default_words="none",
    meaning="The file with the operator's own Sprites token; it is read again when the token is refused. "
    "It serves only what the two variables `AGENTTERMINAL_OWN_TOKEN_...` name.",
    hidden=True,
)
SPRITES_TOKEN: Final = Variable(
    name=f"{PREFIX}SPRITES_TOKEN",
    rule=_TOKEN,
    default=None,
    default_words="none",
    meaning="The operator's own Sprites token itself. Discouraged: an environment is easily shown and cannot change; "
    "prefer the file.",
    hidden=True,
)
OWN_TOKEN_NAMESPACES: Final = Variable(
    name=f"{PREFIX}OWN_TOKEN_NAMESPACES",
    rule=_PATTERNS,
    default=(),
    default_words="none",
    meaning="Namespaces whose objects may do without a `tokenSecretRef` and use the operator's own token.",
)
OWN_TOKEN_SPRITES: Final = Variable(
    name=f"{PREFIX}OWN_TOKEN_SPRITES",
    rule=_PATTERNS,
    default=(),
    default_words="none",
    meaning="Names of sprites that such objects may name.",
)
NAMESPACES: Final = Variable(
    name=f"{PREFIX}NAMESPACES",
    rule=_NAMES,
    default=None,
    default_words="all",
    meaning="The namespaces to watch.",
)
METRICS_ADDRESS: Final = Variable(
    name=f"{PREFIX}METRICS_ADDRESS",
    rule=_ADDRESS,
    default="127.0.0.1",
    default_words="127.0.0.1",
    meaning="Where `/metrics`, `/healthz` and `/readyz` are served; in a pod 0.0.0.0 or ::.",
)
METRICS_PORT: Final = Variable(
    name=f"{PREFIX}METRICS_PORT",
    rule=_is_number(0, 65_535),
    default=9464,
    default_words="9464",
    meaning="The port of the same; 0 takes any free one and logs it.",
)
WORKERS: Final = Variable(
    name=f"{PREFIX}WORKERS",
    rule=_is_number(1, 256),
    default=16,
    default_words="16",
    meaning="How many objects are worked on at the same time.",
)
SPRITES_REQUESTS_PER_SECOND: Final = Variable(
    name=f"{PREFIX}SPRITES_REQUESTS_PER_SECOND",
    rule=_is_number(1, 10_000),
    default=100,
    default_words="100",
    meaning="How many calls a second go to the Sprites API per token; kills have a reserve of their own within it.",
)
METADATA_SECONDS: Final = Variable(
    name=f"{PREFIX}METADATA_SECONDS",
    rule=_is_number(1, 3600),
    default=30,
    default_words="30",
    meaning="How often the list of a token's sprites is read.",
)
RESYNC_SECONDS: Final = Variable(
    name=f"{PREFIX}RESYNC_SECONDS",
    rule=_is_number(10, 3600),
    default=120,
    default_words="120",
    meaning="How often everything known is compared with a fresh list of the API server.",
)
LOG_LEVEL: Final = Variable(
    name=f"{PREFIX}LOG_LEVEL",
    rule=_is_one_of(LogLevel),
    default=LogLevel.INFO,
    default_words="info",
    meaning="How much is logged: `info` is a change of state, `debug` the steady state as well.",
)
LOG_FORMAT: Final = Variable(
    name=f"{PREFIX}LOG_FORMAT",
    rule=_is_one_of(LogFormat),
    default=LogFormat.TEXT,
    default_words="text",
    meaning="`text` for people, `json` for machines: one object per line.",
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
CACHE: Final = Variable(
    name=f"{PREFIX}CACHE",
    rule=_PATH,
    default=None,
    default_words="agentterminal in the user's cache folder",
    meaning="Where the lab keeps the binaries of its control plane.",
    reader=Reader.LAB,
)
DEBUG: Final = Variable(
    name=f"{PREFIX}DEBUG",
    rule=_SWITCH,
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
    WORKERS,
    SPRITES_REQUESTS_PER_SECOND,
    METADATA_SECONDS,
    RESYNC_SECONDS,
    LOG_LEVEL,
    LOG_FORMAT,
    HOLD_EXPIRE_SECONDS,
    HOLD_REFRESH_MS,
    CACHE,
    DEBUG,
)


# --- Reading ---------------------------------------------------------------------------------------------------------


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
        except _Misread:
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
        engine=EngineSettings(
            workers=reading.required(WORKERS),
            metadata_interval=timedelta(seconds=reading.required(METADATA_SECONDS)),
            resync=ResyncSettings(interval=timedelta(seconds=reading.required(RESYNC_SECONDS))),
        ),
        log=LogSettings(level=reading.required(LOG_LEVEL), format=reading.required(LOG_FORMAT)),
        hold=hold,
        remarks=(*_remark_unknown(environ), *_remark_hold(hold, environ)),
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


def _remark_hold(hold: HoldSettings, environ: Mapping[str, str]) -> Iterable[Remark]:
    for fallback in hold.fallbacks:
        match fallback.field:
            case HoldField.EXPIRE:
                name, used = HOLD_EXPIRE_SECONDS.name, f"{fallback.used // timedelta(seconds=1)}"
            case HoldField.REFRESH:
                name, used = HOLD_REFRESH_MS.name, f"{fallback.used // timedelta(milliseconds=1)}"
        yield Remark(name, f"{name} is {_show(environ[name])}, which is not {fallback.rule}; {used} is used.")


def _show(text: str) -> str:
    """Show a value in quotes, short, on one line; one that may hold a password is not shown."""
    if "://" in text and ("@" in text or "?" in text):
        return "(not shown, it may hold a secret)"
    return ascii(text if len(text) <= 80 else text[:77] + "...")


# --- Rendering -------------------------------------------------------------------------------------------------------


def render_settings_help() -> str:
    """Render the table for `agentterminal operator --help`."""
    lines = ["The operator is set by its environment:", ""]
    for variable in VARIABLES:
        if variable.reader is Reader.LAB:
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
        "Generated by `make crds` from `controller/settings.py`; edit that.",
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
