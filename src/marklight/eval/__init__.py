"""Evaluation of search quality on judged queries: metrics, comparisons, ablations."""
