"""Writes the CRDs and the RBAC roles of deploy/ from the kinds."""
