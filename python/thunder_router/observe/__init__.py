"""What operators see: metrics, tracing, the dashboard."""
