"""Example of a closed loop: what the edges find hard becomes their next model, given out in waves.

The models recognise handwritten digits.
"""
