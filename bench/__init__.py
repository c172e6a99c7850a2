"""Measurements: what a request costs beside its peers, and what scheduling gains.

`python -m bench` runs them all and writes the tables of README.md; each module also runs alone.
Nothing here is imported by the package.
"""
