"""Speed and memory, as ratios against a stated baseline in one run: `python -m benchmarks`."""
