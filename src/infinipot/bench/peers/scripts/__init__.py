"""Scripts that run in a peer's own interpreter; alone in their folder, so that they hide no module there."""
