"""A person's side over the network."""
