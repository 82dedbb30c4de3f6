"""What a LocalController itself does for a task of some kinds: a file for each such kind."""
