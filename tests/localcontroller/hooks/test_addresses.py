"""Addresses to which the URL of a Dataset must not lead."""

import pytest

from localcontroller.hooks.addresses import is_refused, parse_networks

REFUSED = [
    *("127.0.0.1", "127.1.2.3", "0.0.0.0", "0.1.2.3", "169.254.169.254", "169.254.1.1"),
    *("224.0.0.1", "255.255.255.255", "240.0.0.1", "100.100.100.200", "168.63.129.16"),
    *("::1", "::", "fe80::1", "fe80::1%1", "ff02::1", "fd00:ec2::254"),
    *("::ffff:127.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1"),
    *("2002:7f00:1::", "64:ff9b::127.0.0.1", "64:ff9b::a9fe:a9fe"),
]
ALLOWED = [
    *("93.184.216.34", "10.0.0.7", "192.168.1.2", "172.16.0.1", "100.64.0.1"),
    *("2606:2800:220:1::", "fd00::7", "::ffff:10.0.0.7", "64:ff9b::8.8.8.8"),
]


@pytest.mark.parametrize("address", REFUSED)
def test_what_only_the_node_may_reach_is_refused(address: str) -> None:
    assert is_refused(address)


@pytest.mark.parametrize("address", ALLOWED)
def test_other_addresses_are_allowed(address: str) -> None:
    assert not is_refused(address)


def test_a_setting_allows_a_network() -> None:
    allowed = parse_networks(["127.0.0.0/8", "fe80::/10"])
    assert not is_refused("127.0.0.1", allowed)
    assert not is_refused("::ffff:127.0.0.1", allowed)
    assert not is_refused("fe80::1", allowed)
    assert is_refused("169.254.169.254", allowed)
