"""Worker knowledge: who serves, what they hold, how they are."""
