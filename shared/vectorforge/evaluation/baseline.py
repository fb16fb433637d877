"""A baseline: the scores of an evaluation, question by question, in a file to compare later ones with."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vectorforge.errors import InvalidInputError
from vectorforge.evaluation.run import Outcome, Plan

_FIELD = "--baseline"


class StoredScores(BaseModel):
    """What one question scored."""

    fingerprint: str
    values: dict[str, float]


class Baseline(BaseModel):
    """The scores of each variant."""

    model_config = ConfigDict(allow_inf_nan=False)

    format: Literal["vectorforge-baseline-1"] = "vectorforge-baseline-1"
    created_at: datetime
    collection: str
    questions: str
    k: int = Field(ge=1)
    retrieval_only: bool
    variants: dict[str, dict[str, StoredScores]] = Field(min_length=1)
    """Variant -> id of a question -> scores."""

    @classmethod
    def of(cls, outcome: Outcome) -> "Baseline":
        """The baseline that an evaluation makes."""
        plan = outcome.plan
        return cls(
            created_at=datetime.now(UTC),
            collection=outcome.collection,
            questions=plan.questions.name,
            k=plan.k,
            retrieval_only=plan.retrieval_only,
            variants={
                run.variant: {
                    scored.question.id: StoredScores(
                        fingerprint=scored.question.fingerprint, values=dict(scored.values)
                    )
                    for scored in run.scored
                }
                for run in outcome.runs
            },
        )

    @classmethod
    def read(cls, path: Path, plan: Plan) -> "Baseline":
        """Read a file.

        Raises:
            InvalidInputError: It cannot be read, is no baseline, or was made with another ``k`` or mode.
        """
        try:
            found = cls.model_validate_json(path.read_bytes())
        except OSError as exc:
            raise InvalidInputError(f"{path} cannot be read ({type(exc).__name__}).", field=_FIELD) from exc
        except ValidationError as exc:
            raise InvalidInputError(
                f"{path} is not a baseline that this version wrote.", field=_FIELD
            ) from exc
        if found.k != plan.k:
            raise InvalidInputError(
                f"{path} was made with --cutoff {found.k}; its rankings cannot be compared with those at "
                f"{plan.k}.",
                field=_FIELD,
            )
        if found.retrieval_only != plan.retrieval_only:
            made = "with" if found.retrieval_only else "without"
            raise InvalidInputError(
                f"{path} was made {made} --retrieval-only; latencies cannot be compared.", field=_FIELD
            )
        return found

    def write(self, path: Path) -> None:
        """Write it to a file, in place of one that is there.

        Raises:
            InvalidInputError: The file cannot be written.
        """
        try:
            path.write_text(self.model_dump_json(indent=1) + "\n", encoding="utf-8")
        except OSError as exc:
            raise InvalidInputError(
                f"{path} cannot be written ({type(exc).__name__}).", field="--save-baseline"
            ) from exc

    def column_for(
        self, variant: str, fingerprints: Mapping[str, str]
    ) -> tuple[str, dict[str, dict[str, float]]]:
        """What a variant is compared with: the stored variant of its name, or the only one there is.

        Args:
            variant: The variant.
            fingerprints: Question -> fingerprint; those that have changed are left out.

        Returns:
            Name of the stored variant, and its values by question.

        Raises:
            InvalidInputError: There is neither, or no question is the same.
        """
        name = variant if variant in self.variants else next(iter(self.variants))
        if variant not in self.variants and len(self.variants) > 1:
            raise InvalidInputError(
                f"The baseline has no variant {variant}; it has: {', '.join(self.variants)}.", field=_FIELD
            )
        same = {
            question: stored.values
            for question, stored in self.variants[name].items()
            if fingerprints.get(question) == stored.fingerprint
        }
        if not same:
            raise InvalidInputError("The baseline has none of these questions.", field=_FIELD)
        return name, same
