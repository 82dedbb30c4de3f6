"""Which connection ends when a new client needs room."""

import pytest

from edgeai.connections import Connections, Stage

IDLE, READING, ANSWERING = Stage.IDLE, Stage.READING, Stage.ANSWERING
# name -> ((address, stages of the connection) by connection, address of the newcomer, who ends)
CASES: dict[str, tuple[dict[str, tuple[str, list[Stage]]], str, str | None]] = {
    "room is left": ({"a": ("x", [])}, "y", None),
    "the oldest": ({"a": ("x", []), "b": ("x", [])}, "x", "a"),
    "one that never asked": ({"a": ("x", [ANSWERING, IDLE]), "b": ("x", [])}, "y", "b"),
    "one that asked before": ({"a": ("x", [READING]), "b": ("x", [ANSWERING, IDLE])}, "y", "b"),
    "a slow one": ({"a": ("x", [READING]), "b": ("x", [READING])}, "y", "a"),
    "no slow one of its own": ({"a": ("x", [READING]), "b": ("x", [READING])}, "x", "new"),
    "no slow one that is alone": ({"a": ("x", [READING]), "b": ("y", [READING])}, "z", "new"),
    "none that is answered": ({"a": ("x", [ANSWERING]), "b": ("x", [ANSWERING])}, "y", "new"),
    "of the crowd": ({"a": ("x", []), "b": ("y", []), "c": ("y", [])}, "z", "b"),
}


@pytest.mark.parametrize("case", CASES)
def test_who_ends(case: str) -> None:
    clients, newcomer, ends = CASES[case]
    connections = Connections[str](limit=max(2, len(clients)))
    for connection, (address, stages) in clients.items():
        assert connections.add(connection, address) is None
        for stage in stages:
            connections.set_stage(connection, stage)
    assert connections.add("new", newcomer) == ends
    assert ("new" in connections.idle()) == (ends != "new")
    assert ends == "new" or ends not in connections.idle()


def test_a_connection_that_has_ended_leaves_room() -> None:
    connections = Connections[str](limit=1)
    assert connections.add("a", "x") is None
    connections.set_stage("a", ANSWERING)
    assert connections.is_any_busy()
    connections.remove("a")
    connections.set_stage("a", IDLE)  # its thread is late
    assert not connections.is_any_busy()
    assert connections.add("b", "x") is None
