"""Real processes, real clients: what a user's own programs meet."""
