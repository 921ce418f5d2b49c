"""How one kind of value is written: a sentence for people, and a reader that follows it to the letter."""

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, Generic, TypeVar

from controller.client.keys import KEYS_SENTENCE, KeysUnreadable, read_keys
from controller.client.settings import SERVICE_PATTERN, SERVICE_SENTENCE
from controller.sprites.settings import judge_base_url
from controller.sprites.token import Token, TokenUnreadable

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)


class Misread(Exception):
    """The text does not follow the rule."""


@dataclass(frozen=True, slots=True)
class Rule(Generic[T]):
    """How one kind of value is written. The sentence completes "must be ..."."""

    sentence: str
    read: Callable[[str], T]
    """Raises `Misread`."""


def whole_number(least: int, most: int) -> Rule[int]:
    """Digits and nothing else, within the two limits."""

    def read(text: str) -> int:
        if re.fullmatch(r"[0-9]{1,9}", text, re.ASCII) and least <= int(text) <= most:
            return int(text)
        raise Misread

    return Rule(f"a whole number from {least:,} to {most:,}, without a unit", read)


def one_of(words: type[E]) -> Rule[E]:
    """One of the words, in capitals or not."""

    def read(text: str) -> E:
        try:
            return words(text.lower())
        except ValueError:
            raise Misread from None

    return Rule("one of " + ", ".join(words), read)


def matching(pattern: str, sentence: str) -> Rule[str]:
    """A text that matches the whole pattern."""

    def read(text: str) -> str:
        if re.fullmatch(pattern, text, re.ASCII):
            return text
        raise Misread

    return Rule(sentence, read)


def list_of(pattern: str, sentence: str) -> Rule[tuple[str, ...]]:
    """Items that each match the whole pattern, separated by commas; white space around an item is no part of it."""

    def read(text: str) -> tuple[str, ...]:
        items = tuple(item.strip() for item in text.split(","))
        if all(re.fullmatch(pattern, item, re.ASCII) for item in items):
            return items
        raise Misread

    return Rule(sentence, read)


def _read_url(text: str) -> str:
    if judge_base_url(text) is not None:
        raise Misread
    return text


def _read_address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise Misread from None


def _read_path(text: str) -> Path:
    if not text.startswith("/") or not text.isprintable():
        raise Misread
    return Path(text)


def _read_token(text: str) -> Token:
    try:
        return Token.read(text)
    except TokenUnreadable:
        raise Misread from None


def _read_keys(text: str) -> str:
    try:
        read_keys(text)
    except KeysUnreadable:
        raise Misread from None
    return text


def _read_switch(text: str) -> bool:
    if text in ("0", "1"):
        return text == "1"
    raise Misread


NAMESPACE: Final = matching(
    r"(?=.{1,63}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?", "the name of a namespace (a-z, 0-9 and -, at most 63 characters)"
)
NAME: Final = matching(
    r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9.]*[a-z0-9])?", "the name of an object (a-z, 0-9, - and ., at most 253 characters)"
)
NAMES: Final = list_of(
    r"(?=.{1,63}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?", "names of namespaces (a-z, 0-9 and -), separated by commas"
)
PATTERNS: Final = list_of(
    r"[-a-z0-9*?]{1,63}", "patterns of a-z, 0-9, -, * (anything) and ? (one character), separated by commas"
)
HOSTS: Final = list_of(
    r"\*|(?=.{1,253}\Z)[A-Za-z0-9]([-.A-Za-z0-9]*[A-Za-z0-9])?|\[?[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*\]?",
    "host names or IP addresses without a port, or *, separated by commas",
)
ORIGINS: Final = list_of(
    r"https?://([A-Za-z0-9]([-.A-Za-z0-9]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?",
    "origins as a browser sends them (https://console.example.com), separated by commas",
)
AUDIENCES: Final = list_of(r"[!-+\--~]{1,253}", "audiences of tokens, without white space, separated by commas")
URL: Final = Rule("an https address without user, password, query and fragment (http only to this machine)", _read_url)
ADDRESS: Final = Rule("an IP address of this machine", _read_address)
ABSOLUTE_PATH: Final = Rule("an absolute path", _read_path)
TOKEN: Final = Rule("a token in ASCII, without white space and control characters", _read_token)
SWITCH: Final = Rule("0 or 1", _read_switch)
SERVICE: Final = matching(SERVICE_PATTERN, SERVICE_SENTENCE)
KEYS: Final = Rule(KEYS_SENTENCE, _read_keys)
