"""Golden files: what every kind decides for many jobs at many moments, recorded as JSON.

`cases/` holds the inputs, `recorded/` the outputs: actions with whole objects, status, events,
assignments and folded reports. `test_golden` compares them byte for byte. After a change that is
meant, write them anew and read the difference:

    python -m tests.golden
    git diff tests/golden/recorded

Every difference is listed in CHANGELOG.md with its reason. Only `adapter` knows the
GlobalManager's modules and structs; all else here is plain JSON.
"""
