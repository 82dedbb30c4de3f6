"""Kinds whose work is done at the edge, as in Sedna, and what only they share."""
