"""Evaluation of search and answers: measures with intervals, comparison of variants, regressions."""
