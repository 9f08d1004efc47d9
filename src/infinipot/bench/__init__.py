"""Speed and memory of recipes and their peers, and a picture of them; sole user of matplotlib beside eval."""
