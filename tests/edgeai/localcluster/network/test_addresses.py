"""Addresses of one range: which is given next, and which can be reserved."""

import pytest

from edgeai.localcluster.network.addresses import AddressesExhausted, AddressPool


def test_addresses_are_reused_last() -> None:
    pool = AddressPool("pod", ["a", "b", "c"])
    first = pool.take()
    pool.release(first)
    assert [pool.take() for _ in range(3)] == ["b", "c", "a"]
    with pytest.raises(AddressesExhausted, match="one more pod"):
        pool.take()


@pytest.mark.parametrize(("address", "taken"), [("b", True), ("x", False), ("", False)])
def test_only_free_addresses_of_the_range_are_reserved(address: str, *, taken: bool) -> None:
    assert AddressPool("pod", ["a", "b"]).reserve(address) is taken
