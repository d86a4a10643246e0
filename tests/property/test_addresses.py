"""Laws of multus.protocol.addresses, with the standard library's ipaddress as the second opinion."""

from __future__ import annotations

import ipaddress

from hypothesis import given
from hypothesis import strategies as st

from multus.protocol import addresses
from multus.testing import strategies

ADDRESS_LIKE = st.text("0123456789abcdefF:./%+- \0\n\u0661é", max_size=24) | st.text(max_size=8)


def reference(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    if "%" in text:
        return None  # a zone
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


@given(strategies.ips() | ADDRESS_LIKE)
def test_addresses_are_those_of_the_standard_library(text: str) -> None:
    expected = reference(text)
    assert addresses.parse_ip(text) == (expected and (expected.version, expected.packed))
    assert addresses.is_ip(text) == (expected is not None)


@given(st.ip_addresses(v=4))
def test_a_mapped_address_is_the_ipv4_address(address: ipaddress.IPv4Address) -> None:
    mapped = f"::ffff:{address}"
    assert addresses.canonical_ip(mapped) == str(address)
    assert addresses.parse_ip(mapped) == addresses.parse_ip(str(address))
    assert addresses.canonical_cidr(f"{mapped}/120") == f"{address}/24"


@given(st.ip_addresses())
def test_every_spelling_has_one_canonical_form(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    canonical = addresses.canonical_ip(str(address))
    assert canonical == addresses.canonical_ip(address.exploded.upper())
    assert canonical is not None
    assert reference(canonical) == reference(str(address))
    assert addresses.canonical_ip(canonical) == canonical


@given(strategies.cidrs())
def test_a_canonical_cidr_stays_as_it_is(text: str) -> None:
    assert addresses.canonical_cidr(text) == text
    interface = ipaddress.ip_interface(text)
    assert addresses.parse_cidr(text) == (interface.version, interface.ip.packed, interface.network.prefixlen)
    assert addresses.is_default(text) == (interface.network.prefixlen == 0)
    assert not addresses.is_ip(text)


@given(ADDRESS_LIKE, st.integers(-1, 200))
def test_a_cidr_is_an_address_and_a_length_within_its_bits(text: str, length: int) -> None:
    address = None if "%" in text else reference(text)
    bits = 128 if ":" in text else 32
    assert addresses.is_cidr(f"{text}/{length}") == (address is not None and 0 <= length <= bits)


@given(ADDRESS_LIKE)
def test_any_text_gets_an_answer(text: str) -> None:
    for lengths in ((6,), (8,), (6, 8, 20)):
        assert addresses.is_mac(text, lengths) in (True, False)
    assert addresses.is_cidr(text) == (addresses.canonical_cidr(text) is not None)
    assert addresses.is_default(text) in (True, False)


@given(st.sampled_from((6, 8, 20)).flatmap(lambda length: st.tuples(st.just(length), strategies.macs(length))))
def test_a_hardware_address_is_recognised_by_its_length_only(drawn: tuple[int, str]) -> None:
    length, text = drawn
    assert [wanted for wanted in (6, 8, 20) if addresses.is_mac(text, (wanted,))] == [length]


@given(strategies.macs(), st.integers(0, 16), st.characters())
def test_a_mac_with_one_character_replaced_is_a_mac_only_if_that_is_a_digit(text: str, at: int, character: str) -> None:
    at = min(at, len(text) - 1)
    changed = text[:at] + character + text[at + 1:]
    is_digit = text[at] not in ":-." and character in "0123456789abcdefABCDEF"
    assert addresses.is_mac(changed) == (is_digit or changed == text)
