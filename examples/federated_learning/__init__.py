"""Handwritten digits that stay where they are: three edge nodes learn one model together."""
