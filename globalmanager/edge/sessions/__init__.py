"""The sessions with the nodes. The GlobalManager sends assignments, and the nodes send reports."""
