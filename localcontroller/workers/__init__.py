"""The workers of this node: what they say over HTTP, and what is seen of them."""
