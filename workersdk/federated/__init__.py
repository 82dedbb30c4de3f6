"""Federated learning: trainers keep their data, an aggregator joins what they learned.

`learning` is the trainers' side, `server` the aggregator's. Between them go weights as raw
numbers, in pieces with a checksum, over HTTP; `protocol` says how.
"""
