"""Methods with their sizes and settings, and the list of everything a user can set."""
