"""Lets connections in: TLS, lobby, rates, handshake. Parses no frame."""
