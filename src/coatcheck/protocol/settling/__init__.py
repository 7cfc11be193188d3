"""Settling: candidates agree by letter."""
