"""What remembers the newest of many keys forgets the others."""

from edgeai.newest import NewestKeys


def test_the_memory_is_bounded() -> None:
    memory = NewestKeys[str, None](2)
    news = []
    for thing in "aabacba":
        news.append(thing not in memory)
        memory[thing] = None
    assert news == [True, False, True, False, True, True, True]
