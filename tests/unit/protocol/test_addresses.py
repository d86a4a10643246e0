"""multus.protocol.addresses: the grammar of addresses, CIDRs and MACs."""

from __future__ import annotations

import pytest

from multus.protocol import addresses

V4 = bytes((10, 0, 0, 2))
V6 = bytes.fromhex("fd020000000000000000000000000007")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10.0.0.2", (4, V4)),
        ("fd02::7", (6, V6)),
        ("FD02:0:0:0:0:0:0:7", (6, V6)),
        ("::", (6, bytes(16))),
        ("::ffff:10.0.0.2", (4, V4)),
        ("::FFFF:a00:2", (4, V4)),
    ],
)
def test_an_ip_address_is_its_family_and_bytes(text: str, expected: tuple[int, bytes]) -> None:
    assert addresses.parse_ip(text) == expected
    assert addresses.is_ip(text)


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "10.0.0", "10.0.0.256", "10.0.0.02", "010.0.0.2", "10.0.0.2 ", " 10.0.0.2", "10.0.0.2\n", "+1.0.0.2",
        "1.2.3.4.5", "0x0a.0.0.2", "167772162", "10.0.0.2/24", "fe80::1%eth0", "::1::", "12345::", "[::1]", "g::",
        "::ffff:10.0.0.02", "10.0.0.2\0", "::\0", "\ud800:", "\u0661.0.0.2",
    ],
)
def test_what_is_no_ip_address_is_none(text: str) -> None:
    assert addresses.parse_ip(text) is None
    assert addresses.canonical_ip(text) is None
    assert not addresses.is_ip(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10.0.0.2/24", (4, V4, 24)),
        ("10.0.0.2/0", (4, V4, 0)),
        ("10.0.0.2/32", (4, V4, 32)),
        ("10.0.0.2/024", (4, V4, 24)),
        ("fd02::7/128", (6, V6, 128)),
        ("::ffff:10.0.0.2/120", (4, V4, 24)),
        ("::ffff:10.0.0.2/96", (4, V4, 0)),
        ("::ffff:10.0.0.2/95", (6, bytes(10) + b"\xff\xff" + V4, 95)),
    ],
)
def test_a_cidr_keeps_its_host_bits(text: str, expected: tuple[int, bytes, int]) -> None:
    assert addresses.parse_cidr(text) == expected
    assert addresses.is_cidr(text)


@pytest.mark.parametrize(
    "text",
    [
        "", "/", "/24", "10.0.0.2", "10.0.0.2/", "10.0.0.2/33", "10.0.0.2/+8", "10.0.0.2/-1", "10.0.0.2/ 8", "10.0.0.2/8 ",
        "10.0.0.2/8/8", "10.0.0.2/\u0668",
        "10.0.0/8", "fd02::7/129", "fd02::7/1000", "fd02::7/255.255.0.0", "10.0.0.2/255.0.0.0", "fe80::1%eth0/64",
    ],
)
def test_what_is_no_cidr_is_none(text: str) -> None:
    assert addresses.parse_cidr(text) is None
    assert addresses.canonical_cidr(text) is None
    assert not addresses.is_cidr(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10.0.0.2/24", "10.0.0.2/24"),
        ("FD02:0::0007/64", "fd02::7/64"),
        ("::ffff:10.0.0.2/120", "10.0.0.2/24"),
        ("::0/0", "::/0"),
        ("0:0:0:0:0:0:0:0/00", "::/0"),
    ],
)
def test_a_canonical_cidr_is_lower_case_and_short(text: str, expected: str) -> None:
    assert addresses.canonical_cidr(text) == expected


def test_a_mapped_address_prints_as_ipv4() -> None:
    assert addresses.canonical_ip("::FFFF:10.0.0.2") == "10.0.0.2"


@pytest.mark.parametrize("text", ["02:00:5e:00:00:4D", "02-00-5e-00-00-4d", "0200.5e00.004D"])
def test_a_mac_is_written_in_bytes_or_in_groups_of_two_bytes(text: str) -> None:
    assert addresses.is_mac(text)


@pytest.mark.parametrize(
    "text",
    [
        "", "02", "02005e00004d", "02:00:5e:00:00", "02:00:5e:00:00:4d:00", "02:00:5e:00:00:4d:", ":02:00:5e:00:00", "02:00-5e:00:00:4d",
        "2:0:5e:0:0:4d",
        "02:00:5e:00:00:4g", "02:00:5e:00:00:4d\n", " 02:00:5e:00:00:4d", "0200.5e00",
        "0200.5e00.04d", "020.05e.000.04d", "02.00.5e.00.00.4d", "0200:5e00:004d",
        "02:00:5e:00:00:+d", "02:00:5e:00:00:\uff14d",
    ],
)
def test_what_is_no_mac_is_refused(text: str) -> None:
    assert not addresses.is_mac(text)


def test_a_hardware_address_has_one_of_the_lengths_asked_for() -> None:
    guid = "02:00:5e:00:00:4d:00:01"
    assert not addresses.is_mac(guid)
    assert addresses.is_mac(guid, lengths=(8,))
    assert addresses.is_mac(guid, lengths=(6, 8, 20))
    assert not addresses.is_mac("02:00:5e:00:00:4d", lengths=(8, 20))
    assert addresses.is_mac("0200.5e00.004d.0001", lengths=(8,))


@pytest.mark.parametrize("dst", [None, "", "0.0.0.0/0", "::/0", "::0/0", "10.0.0.0/0", "fd02::/0", "::ffff:0.0.0.0/96"])
def test_a_default_route_has_no_destination_or_prefix_length_0(dst: str | None) -> None:
    assert addresses.is_default(dst)


@pytest.mark.parametrize("dst", ["0.0.0.0/1", "::/1", "0.0.0.0/32", "10.0.0.0/8", "0.0.0.0", "default", "::"])
def test_any_other_destination_is_no_default_route(dst: str) -> None:
    assert not addresses.is_default(dst)
