"""What objects are, what the API makes of them, and where they are kept."""
