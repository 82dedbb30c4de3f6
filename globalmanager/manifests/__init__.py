"""Writes the CRDs and the rights of deploy/ from the kinds."""
