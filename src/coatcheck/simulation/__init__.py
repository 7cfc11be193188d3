"""Whole rounds in memory, run by the role objects that services use, with every error measured."""
