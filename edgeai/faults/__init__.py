"""Why a job does not go on: faults of pods, containers and jobs, with a remedy for each.

Conditions, console, command line and client say the same words, because all of them ask here.
"""
