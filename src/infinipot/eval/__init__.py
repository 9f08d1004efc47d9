"""Quality of recipes over tasks: runs that can be resumed, and reports of them."""
