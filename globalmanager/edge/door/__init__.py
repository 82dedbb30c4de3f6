"""Admits connections of LocalControllers: TLS, lobby, rates, handshake. No module reads frames."""
