"""Hooks: work that the LocalController itself does for the tasks of one kind, such as Dataset."""
