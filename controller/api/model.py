"""
What every model of the kind shares: how it reads JSON, and the types its fields are made of.

Problem: pydantic by itself is kinder than the API server: it takes `"90"` and `true` for numbers and a number for a
time. And a limit in a model would refuse to read an object that was stored under another version's limit. Promise:
types are exactly as strict as the API server's; limits are data, which the CRD and `judge_object` share.
"""

from datetime import UTC, datetime
from typing import Annotated, Any, Final

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, Strict
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

NO_TIME: Final = "no_time"
"""What pydantic calls a text that names no moment, unlike a value of another type."""


class Model(BaseModel):
    """A frozen value that reads camelCase JSON, ignores what it does not know, and is built by its Python names."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="ignore",
        frozen=True,
        serialize_by_alias=True,
        validate_by_alias=True,
        validate_by_name=True,
    )


def read_whole(value: Any) -> Any:
    """Take 90.0 for 90, as JSON has only one kind of number; leave everything else to the strict type."""
    return int(value) if type(value) is float and value.is_integer() else value


def read_moment(value: Any) -> Any:
    """Take an aware datetime, or RFC 3339 text; never a bare number or a date."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise PydanticCustomError(NO_TIME, "must be a time in RFC 3339, like 2026-01-31T08:00:00Z") from None
    if not isinstance(value, datetime):
        raise PydanticCustomError("string_type", "must be a string with a time in RFC 3339")
    if value.tzinfo is None:
        raise PydanticCustomError(NO_TIME, "must be a time in RFC 3339 with Z or an offset")
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise PydanticCustomError(NO_TIME, "must be a time in the years 1 to 9999, in UTC") from None


def read_second(value: Any) -> Any:
    """Read a moment and drop its fraction: conditions carry whole seconds, as everywhere in Kubernetes."""
    return read_moment(value).replace(microsecond=0)


def render_moment(moment: datetime) -> str:
    """Write RFC 3339 in UTC with a Z, with microseconds where there are any."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def limit(**limits: Any) -> Any:
    """
    Give a type its limits, in the words of the CRD (`maxLength=128`).

    They are for the API server and for `judge_object`; reading a stored object does not ask for them.
    """
    return Field(json_schema_extra=limits)


def about(*, description: str, list_map_key: str = "", **limits: Any) -> Any:
    """
    Describe a field for users, and give it its limits.

    Args:
        description: What `kubectl explain` shows.
        list_map_key: For a list whose entries are known by one of their fields: that field.
        limits: See `limit`.
    """
    if list_map_key:
        limits |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [list_map_key]}
    return Field(description=description, json_schema_extra=limits)


Text = Annotated[str, Strict()]
Flag = Annotated[bool, Strict()]
Whole = Annotated[int, Strict(), BeforeValidator(read_whole)]
Count = Annotated[Whole, limit(minimum=0)]
Generation = Annotated[Whole, limit(format="int64")]
Moment = Annotated[
    AwareDatetime,
    BeforeValidator(read_moment, json_schema_input_type=str),
    PlainSerializer(render_moment, when_used="json"),
    limit(format="date-time"),
]
Second = Annotated[
    AwareDatetime,
    BeforeValidator(read_second, json_schema_input_type=str),
    PlainSerializer(render_moment, when_used="json"),
    limit(format="date-time"),
]
