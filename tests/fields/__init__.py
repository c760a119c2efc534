"""Tests of every field class that a project may use, from the declaration to the written row."""
