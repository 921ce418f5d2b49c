"""Every answer of the API server has its class, and its text is fit to be shown."""

from datetime import timedelta

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.errors import Failure
from controller.kube import errors
from controller.kube.errors import (
    Cause,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    KubeError,
    Malformed,
    NotFound,
    Rejected,
    ServerFault,
    Throttled,
    Unauthorized,
    build_error,
    classify_status,
    read_retry_after,
    tidy,
)

REQUEST = "patch agentterminals/status team-a/one"


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (200, None),
        (201, None),
        (202, None),
        (299, None),
        (301, Rejected),
        (307, Rejected),
        (400, Rejected),
        (401, Unauthorized),
        (403, Forbidden),
        (404, NotFound),
        (405, Rejected),
        (406, Rejected),
        (409, Conflict),
        (410, Gone),
        (413, Rejected),
        (415, Rejected),
        (422, Invalid),
        (429, Throttled),
        (499, Rejected),
        (500, ServerFault),
        (502, ServerFault),
        (503, ServerFault),
        (504, ServerFault),
        (599, ServerFault),
        (999, ServerFault),
        (101, ServerFault),
    ],
)
def test_each_status_has_its_class(status: int, kind: type[KubeError] | None) -> None:
    assert classify_status(status) is kind


@given(st.integers(min_value=0, max_value=1_000), st.binary(max_size=64), st.booleans())
def test_every_answer_that_is_no_success_makes_an_error_that_can_be_shown(
    status: int, body: bytes, is_write: bool
) -> None:
    error = build_error(status, body, request=REQUEST, is_write=is_write)
    assert error.status == status
    assert error.failure in Failure
    assert len(error.message) <= 256
    assert error.message.isprintable()


def classes_below(kind: type[KubeError]) -> set[type[KubeError]]:
    """The classes of the module; others may say more of some of them to a person."""
    children = [child for child in kind.__subclasses__() if child.__module__ == errors.__name__]
    return {kind}.union(*map(classes_below, children))


def test_the_tree_in_the_module_is_the_tree_of_classes() -> None:
    assert errors.__doc__ is not None
    drawn = {line.split("── ")[1].split()[0] for line in errors.__doc__.splitlines() if "── " in line}
    assert drawn == {kind.__name__ for kind in classes_below(KubeError)} - {"KubeError"}


def test_each_class_names_its_failure() -> None:
    for kind in classes_below(KubeError) - {KubeError}:
        assert kind.failure in Failure


def status_body(message: str, **details: object) -> bytes:
    return orjson.dumps({"kind": "Status", "apiVersion": "v1", "message": message, "details": details})


def test_a_rule_that_spoke_differs_from_a_test_that_failed() -> None:
    spoke = build_error(
        422,
        status_body("is invalid", causes=[{"reason": "FieldValueInvalid", "field": "spec.x", "message": "is final"}]),
        request=REQUEST,
    )
    failed = build_error(422, status_body("the server rejected our request"), request=REQUEST)
    assert isinstance(spoke, Invalid)
    assert spoke.spoke
    assert spoke.causes == (Cause("spec.x", "is final"),)
    assert isinstance(failed, Invalid)
    assert not failed.spoke
    assert failed.causes == ()


def test_the_servers_remark_about_rules_left_unchecked_is_no_cause() -> None:
    causes = [
        {"field": "spec.x", "message": "must be a string"},
        {"field": "<nil>", "message": "some validation rules were not checked"},
    ]
    error = build_error(422, status_body("is invalid", causes=causes), request=REQUEST)
    assert isinstance(error, Invalid)
    assert error.causes == (Cause("spec.x", "must be a string"),)


@pytest.mark.parametrize("body", [b"", b"<html>502</html>", b"[]", b'"x"', b'{"details": 3}', b'{"message": 3}'])
def test_an_answer_of_something_before_the_api_server_makes_a_sentence_too(body: bytes) -> None:
    error = build_error(502, body, request=REQUEST)
    assert error.message == "The Kubernetes API answered 502 to patch agentterminals/status team-a/one."


def test_the_servers_own_words_are_told() -> None:
    error = build_error(403, status_body('User "x"\n cannot patch\x00'), request=REQUEST)
    assert error.message == f'The Kubernetes API answered 403 to {REQUEST}: User "x" cannot patch'


def test_a_long_text_is_cut_and_shows_it() -> None:
    assert len(tidy("x" * 257)) == 256
    assert tidy("x" * 257).endswith("…")
    assert tidy("x" * 256) == "x" * 256


@pytest.mark.parametrize(
    ("header", "details", "wait"),
    [
        ("3", {}, timedelta(seconds=3)),
        (None, {"retryAfterSeconds": 7}, timedelta(seconds=7)),
        ("3", {"retryAfterSeconds": 7}, timedelta(seconds=3)),
        ("soon", {}, None),
        ("0", {}, None),
        (None, {"retryAfterSeconds": 0}, None),
        (None, {"retryAfterSeconds": True}, None),
        (None, {}, None),
    ],
)
def test_the_wait_is_what_the_answer_asked_for(
    header: str | None, details: dict[str, object], wait: timedelta | None
) -> None:
    error = build_error(429, status_body("slow", **details), request=REQUEST, retry_after=header)
    assert isinstance(error, Throttled)
    assert error.retry_after == wait


@given(st.one_of(st.text(), st.integers(), st.none(), st.booleans(), st.floats()))
def test_no_wait_can_be_written_that_breaks_the_reading(value: object) -> None:
    wait = read_retry_after(value)
    assert wait is None or wait > timedelta(0)


@pytest.mark.parametrize(
    ("status", "may"), [(400, False), (403, False), (409, False), (422, False), (429, False), (500, True), (504, True)]
)
def test_a_refused_write_did_not_happen_and_a_servers_fault_leaves_it_open(status: int, may: bool) -> None:
    assert build_error(status, b"", request=REQUEST, is_write=True).may_have_happened is may
    assert build_error(status, b"", request=REQUEST, is_write=False).may_have_happened is False


def test_success_that_is_taken_for_an_error_is_malformed() -> None:
    assert isinstance(build_error(204, b"", request=REQUEST), Malformed)
