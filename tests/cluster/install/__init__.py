"""`edgeai install` and its sisters on a real API server with controllers and two nodes."""
