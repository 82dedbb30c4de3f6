"""Writes the CRDs and the RBAC roles of deploy/, generated from the kinds."""
