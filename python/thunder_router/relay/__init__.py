"""The byte relay: one request's way from client to worker and back."""
