"""What drives the systems under measurement: wrk with `post.lua`, and our own SSE client."""
