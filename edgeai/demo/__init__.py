"""One module for each demo: a whole story, from nothing to a table, and nothing left behind."""
