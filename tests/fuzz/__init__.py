"""Differential fuzzing: random graphs, run by ulpscope at every fusion level and judged by others."""
