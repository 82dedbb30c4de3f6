"""A long run of three replicas under churn and kills: what grows, and what is lost, in time."""
