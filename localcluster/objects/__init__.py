"""Objects: resources, defaults, validation, patches, selectors, and the store."""
