"""The control surface: FastAPI routers, and the app that composes the rooms."""
