"""What ``vectorforge eval --tune`` shows."""

from typing import TYPE_CHECKING

from vectorforge.cli.terminal import Terminal

if TYPE_CHECKING:
    from vectorforge.evaluation.tuning import Tuning

_BAR = 40


def print_tuning(terminal: Terminal, tuning: "Tuning", collection: str, *, saved: bool) -> None:
    """Print the curve, what the best weight is worth, and whether it was kept."""
    if terminal.json_output:
        terminal.json(
            {
                "collection": collection,
                "questions": tuning.questions,
                "cutoff": tuning.k,
                "current": tuning.current,
                "best": tuning.best,
                "current_ndcg": tuning.current_ndcg,
                "cross_validated_ndcg": tuning.cross_validated,
                "is_gain": tuning.is_gain,
                "saved": saved,
                "curve": [{"dense_weight": w, "ndcg": figure} for w, figure in tuning.curve.items()],
            }
        )
        return
    rows = [
        (f"{weight:g}", f"{figure:.4f}", "#" * round(figure * _BAR), _mark(tuning, weight))
        for weight, figure in tuning.curve.items()
    ]
    terminal.table(["Weight of vectors#", f"nDCG@{tuning.k}#", "", ""], rows)
    terminal.note(
        f"{tuning.questions} questions to {collection}. Questions that did not choose the weight: "
        f"{tuning.cross_validated:.4f}, with the current one {tuning.current_ndcg:.4f}."
    )
    if saved:
        terminal.note(f"Saved: {collection} has the weight {tuning.best:g}.")
    elif tuning.is_gain:
        terminal.note(f"--save gives {collection} the weight {tuning.best:g}.")
    else:
        terminal.note(f"No gain: {collection} keeps the weight {tuning.current:g}.")


def _mark(tuning: "Tuning", weight: float) -> str:
    marks = {tuning.current: "current", tuning.best: "best"}
    return "current, best" if weight == tuning.best == tuning.current else marks.get(weight, "")
