"""Speed beside peers: the machine's ceilings, parts of a cycle, alternating rounds, the paper's Figure 7."""
