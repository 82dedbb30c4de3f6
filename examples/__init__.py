"""Ready-made jobs, one folder for each kind; the demos and the tests run them."""
