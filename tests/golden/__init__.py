"""Golden files: what every kind decides for many jobs at many moments, recorded as JSON.

`cases/` holds the inputs, `recorded/` the outputs: actions with whole objects, status, events,
assignments and folded reports. `test_golden` compares them byte for byte. After a change that is
meant, write them anew and read the difference:

    python -m tests.golden
    git diff tests/golden/recorded

The body of the commit message explains every difference.
"""
