"""Hostile input for all that reads what strangers write: `make fuzz`, in short in each test run."""
