"""A project whose tools hold on to what they have, each in a way of its own."""
