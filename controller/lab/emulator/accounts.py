"""
Organizations with their tokens and sprites, and what may be asked of the list of sprites.

Source: sprites-api.md 1 (token shape), 2.3, 2.4 and 2.6. Assumed: the name rule is that of DNS labels (question 33).
"""

import base64
import binascii
import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from controller.lab.emulator.lifecycle import Status
from controller.lab.emulator.limits import Limits
from controller.lab.emulator.sprites import Sprite
from controller.lab.emulator.switches import Config, Counts, HasMore, SpriteFields, SpriteNames, Switches

NAMES: Final = {
    SpriteNames.DNS: re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", re.ASCII),
    SpriteNames.SHORT: re.compile(r"[a-z0-9]([a-z0-9-]{0,46}[a-z0-9])?", re.ASCII),
    SpriteNames.LOOSE: re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII),
}


@dataclass
class Organization:
    """Whose sprites they are."""

    slug: str
    sprites: dict[str, Sprite] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)

    def count_running(self) -> int:
        """Tell how many of its sprites run."""
        return sum(sprite.status is Status.RUNNING for sprite in self.sprites.values())


@dataclass(frozen=True)
class Page:
    """A part of the list, in the order of names."""

    sprites: list[Sprite]
    next_token: str | None


def parse_slug(token: str) -> str:
    """Read whose token it is: the part before the first slash."""
    return token.split("/", 1)[0]


def list_page(organization: Organization, *, prefix: str, size: int, token: str | None) -> Page:
    """
    Cut a page out of the list.

    Raises:
        ValueError: The token is none of ours.
    """
    after = "" if token is None else decode_token(token)
    names = sorted(name for name in organization.sprites if name.startswith(prefix) and name > after)
    shown = names[:size]
    return Page(
        [organization.sprites[name] for name in shown], encode_token(shown[-1]) if len(names) > len(shown) else None
    )


def encode_token(name: str) -> str:
    """Make the token that continues after a name."""
    return base64.urlsafe_b64encode(f"after:{name}".encode()).decode()


def decode_token(token: str) -> str:
    """Read after which name to continue."""
    try:
        kind, _, name = base64.urlsafe_b64decode(token).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError) as error:
        raise ValueError("invalid continuation_token") from error
    if kind != "after":
        raise ValueError("invalid continuation_token")
    return name


def render_time(moment: datetime | None) -> str | None:
    """Write a moment as RFC 3339 with microseconds."""
    return None if moment is None else moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


SURE: Final = ("id", "name", "organization", "url", "url_settings", "created_at", "updated_at")
"""The fields that are promised to be there."""


def render_sprite(sprite: Sprite, version: str) -> dict[str, Any]:
    """Write a sprite as the API shows it."""
    switches = sprite.switches
    shown = {**_render_all(sprite, version), **(sprite.config if switches.config is Config.SHOWN else {})}
    return {name: shown[name] for name in SURE} if switches.sprite_fields is SpriteFields.SURE else shown


def _render_all(sprite: Sprite, version: str) -> dict[str, Any]:
    return {
        "id": sprite.id,
        "name": sprite.name,
        "organization": sprite.organization,
        "status": sprite.shown_status.value,
        "version": version,
        "url": f"https://{sprite.name}-lab.sprites.invalid",
        "url_settings": sprite.url_settings,
        "labels": sprite.labels,
        "created_at": render_time(sprite.created_at),
        "updated_at": render_time(sprite.updated_at),
        "last_running_at": render_time(sprite.last_running_at),
        "last_warming_at": render_time(sprite.last_warming_at),
    }


def render_slim(sprite: Sprite) -> dict[str, Any]:
    """Write a sprite as `bulk_load` shows it."""
    return {"name": sprite.name, "org_slug": sprite.organization, "updated_at": render_time(sprite.updated_at)}


def render_counts(organization: Organization) -> dict[str, Any]:
    """Count the states of an organization's sprites."""
    counts = dict.fromkeys((status.value for status in Status), 0)
    for sprite in organization.sprites.values():
        counts[sprite.shown_status.value] += 1
    return {"name": organization.slug, **counts, "running_limit": None, "warm_limit": None}


def render_page(page: Page, organization: Organization, version: str, switches: Switches, *, slim: bool) -> Any:
    """Write a page of the list, with the counts where the switch puts them."""
    counts = render_counts(organization)
    last = page.next_token is None
    return {
        "sprites": [render_slim(sprite) if slim else render_sprite(sprite, version) for sprite in page.sprites],
        "has_more": not last or switches.has_more is HasMore.STUCK,
        "next_continuation_token": page.next_token,
        **({} if switches.counts is Counts.TOP else {"org": counts}),
        **({} if switches.counts is Counts.ORG else counts),
    }
