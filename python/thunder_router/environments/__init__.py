"""Tool environments: what a program owns outside the GPU, and how it goes."""
