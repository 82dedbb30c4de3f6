"""Federated learning: trainers keep their data, and an aggregator joins their models.

Module `learning` is the trainer's side, and module `server` is the aggregator's side. Both sides
send weights over HTTP as raw numbers, in pieces with a checksum (see `protocol`).
"""
