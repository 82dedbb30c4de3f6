"""Example jobs, one folder for each kind. The demos and the tests run these jobs."""
