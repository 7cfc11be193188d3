"""A model taught by people whose updates Flower never sees."""
