"""Models as files: which there are, how they are fetched, what they need. Nothing here loads one."""
