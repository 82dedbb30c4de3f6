"""Writes the CRDs and the rules of RBAC for the chart, generated from the kinds."""
