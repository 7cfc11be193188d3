"""Whole rounds in memory, by the objects that ship, with everything known and measured."""
