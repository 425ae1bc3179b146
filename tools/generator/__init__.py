"""Turns the tables (operators, dtypes, errors) into everything that repeats them.  Entry point: tools/generate.py."""
