"""Whole days in virtual time on the engine model: scenarios, intervals, tables and plots."""
