"""Jobs that are broken in many ways, and what describe, console and conditions say of them."""
