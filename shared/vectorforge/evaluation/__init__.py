"""How well questions are answered: measures with intervals, variants compared, regressions found."""
