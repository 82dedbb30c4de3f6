"""Speaks to the LocalControllers: lets them in, sends what nodes must hold, takes in reports."""
