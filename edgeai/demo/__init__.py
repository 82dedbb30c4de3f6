"""The demos, one folder for each, with the manifests and the workers' programs of its jobs.

`story` is the demo: it starts a cluster, runs the jobs and ends with a result table. Users can run
the jobs themselves, and tests do.
"""
