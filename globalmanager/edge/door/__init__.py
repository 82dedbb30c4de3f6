"""Lets connections in: TLS, lobby, rates, handshake. Nothing here parses a frame."""
