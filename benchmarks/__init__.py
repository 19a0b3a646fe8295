"""Benchmarks by name: ``python -m benchmarks dispatch models``; see README.md."""
