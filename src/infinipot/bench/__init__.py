"""Speed and memory of one's own model on one's own machine; `benchmarks/` compares with other projects."""
