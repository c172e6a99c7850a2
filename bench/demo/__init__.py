"""`make demo`: agent programs through real HTTP, with and without scheduling, side by side."""
