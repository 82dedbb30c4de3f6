"""What operators see from outside: metrics, alerts, the dashboard."""
