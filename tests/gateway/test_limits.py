"""How much anybody gets."""

from datetime import timedelta

import pytest

from controller.gateway.limits import AddressLimit, Places
from controller.gateway.refusals import RefusalCause, Refused
from controller.gateway.settings import LimitSettings
from tests.engine.clocks import HandClock

SECOND = timedelta(seconds=1)


def limit(clock: HandClock, **settings: int) -> AddressLimit:
    return AddressLimit(LimitSettings(address_requests_per_second=2, address_burst=3, **settings), clock)


def test_a_burst_is_let_through_and_then_the_rate() -> None:
    clock = HandClock()
    addresses = limit(clock)
    for _ in range(3):
        addresses.demand("10.0.0.1")
    with pytest.raises(Refused) as refused:
        addresses.demand("10.0.0.1")
    assert refused.value.refusal.retry_after == SECOND / 2

    clock.passed += SECOND / 2
    addresses.demand("10.0.0.1")
    with pytest.raises(Refused):
        addresses.demand("10.0.0.1")

    clock.passed += timedelta(hours=1)
    for _ in range(3):
        addresses.demand("10.0.0.1")
    with pytest.raises(Refused):
        addresses.demand("10.0.0.1")


@pytest.mark.parametrize(
    ("one", "other", "share"),
    [
        ("10.0.0.1", "10.0.0.2", False),
        ("2001:db8::1", "2001:db8::2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("", "10.0.0.1", False),
    ],
)
def test_one_sender_is_an_address_or_a_whole_network_of_ipv6(one: str, other: str, share: bool) -> None:
    addresses = limit(HandClock())
    for _ in range(3):
        addresses.demand(one)
    if share:
        with pytest.raises(Refused):
            addresses.demand(other)
    else:
        addresses.demand(other)


def test_so_many_addresses_are_remembered_and_no_more() -> None:
    addresses = limit(HandClock(), addresses=2)
    for _ in range(3):
        addresses.demand("10.0.0.1")
    addresses.demand("10.0.0.2")
    with pytest.raises(Refused):
        addresses.demand("10.0.0.1")  # not forgotten: it was heard last
    addresses.demand("10.0.0.3")  # forgets 10.0.0.2
    addresses.demand("10.0.0.4")  # forgets 10.0.0.1
    addresses.demand("10.0.0.1")


def test_a_place_is_given_back_once_however_it_was_left() -> None:
    places = Places(LimitSettings(person_sockets=1, object_sockets=1, sockets=1, unauthenticated=1))

    def fail_inside() -> None:
        with places.stranger(), places.socket("anna", "u"):
            assert places.sockets == 1
            raise ValueError("a bug")

    for _ in range(2):
        with pytest.raises(ValueError, match="a bug"):
            fail_inside()
    assert places.sockets == 0


@pytest.mark.parametrize(
    ("person", "uid", "cause"),
    [
        ("anna", "other", RefusalCause.PERSON_LIMIT),
        ("bert", "one", RefusalCause.OBJECT_LIMIT),
        ("bert", "other", RefusalCause.FULL),
    ],
)
def test_persons_objects_and_the_whole_have_limits_of_their_own(person: str, uid: str, cause: RefusalCause) -> None:
    places = Places(LimitSettings(person_sockets=1, object_sockets=1, sockets=1))
    with places.socket("anna", "one"):
        with pytest.raises(Refused) as refused, places.socket(person, uid):
            pass
        assert refused.value.refusal.cause is cause
        assert refused.value.refusal.retry_after is not None
        assert places.sockets == 1
