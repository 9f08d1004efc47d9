"""What was read stays on disk as passages; before an answer the passages that matter are found again."""
