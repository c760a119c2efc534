"""Every field class that a project may use, tried from the declaration to the written row."""
