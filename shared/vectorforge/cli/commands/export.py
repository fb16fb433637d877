"""``vectorforge eval export``."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from vectorforge.cli.options import CollectionOption
from vectorforge.cli.session import CommandContext, Session, session_command
from vectorforge.cli.terminal import ExitCode
from vectorforge.errors import InvalidInputError

if TYPE_CHECKING:
    from vectorforge.evaluation.questions import FeedbackQuestions


@session_command
def export(
    context: CommandContext,
    origin: Annotated[Literal["feedback"], typer.Option("--from", help="What to make the questions of.")],
    collection: CollectionOption = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write.", show_default="stdout")
    ] = None,
    tenant: Annotated[
        str | None, typer.Option(help="Tenant; default: the local tenant.", show_default=False)
    ] = None,
) -> None:
    """Write rated queries as a question set that [cyan]vectorforge eval[/cyan] reads.

    The chunks that should have been cited are the judgments, or the cited ones if
    every rating is "up". A query rated "down" without such chunks is written
    without judgments; [cyan]eval[/cyan] skips it until you add them. Queries whose
    text the query log does not have are left out.

    [bold]Examples[/bold]

        vectorforge eval export --from feedback -c handbook -o rated.jsonl

        vectorforge eval rated.jsonl -c handbook --retrieval-only
    """

    async def work(session: Session) -> "FeedbackQuestions":
        from vectorforge.evaluation.questions import read_feedback

        return await read_feedback(session.services.feedback, (await session.collection(collection)).id)

    questions = context.run(work, tenant=tenant)
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in questions.lines)
    if output is not None:
        try:
            output.write_text(text, encoding="utf-8")
        except OSError as exc:
            raise InvalidInputError(f"{output}: {exc.strerror}.", field="--output") from exc
    if context.terminal.json_output:
        context.terminal.json(asdict(questions))
    elif output is None:
        sys.stdout.write(text)
    context.terminal.note(
        f"{origin}: {len(questions.lines)} questions, {questions.unjudged} of them without judgments; "
        f"{questions.without_text} left out because their text is not logged."
    )
    if not questions.lines:
        raise typer.Exit(ExitCode.INCOMPLETE)
