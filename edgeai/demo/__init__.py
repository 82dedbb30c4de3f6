"""One module for each demo, from an empty machine to a table of results."""
