"""A project with tools that need an approval, have a time limit or a throttle."""
