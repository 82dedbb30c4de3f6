"""What a power cut may leave of a file."""

import random
from typing import Final

BLOCK: Final = 4096


def torn(durable: bytes, current: bytes, random_: random.Random) -> bytes:
    """A content that a file may have after a power cut: each block written since the last sync has
    reached the disk, or not.
    """
    fate = random_.random()
    if fate < 0.5 or durable == current:
        return durable
    if fate < 0.6:
        return current
    blocks = range(0, max(len(durable), len(current)), BLOCK)
    mixed = bytearray(max(len(durable), len(current)))
    end = len(durable)
    for start in blocks:
        source = current if random_.random() < 0.5 else durable
        block = source[start : start + BLOCK]
        mixed[start : start + len(block)] = block
        if source is current:
            end = max(end, start + len(block))
    return bytes(mixed[:end])
