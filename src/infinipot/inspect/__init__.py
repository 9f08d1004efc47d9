"""What the pot kept: runs that are recorded, numbers and pictures about them, one page to look at."""
