"""The web console: pages for people, live from the caches (docs/decisions/0025-the-console.md)."""
