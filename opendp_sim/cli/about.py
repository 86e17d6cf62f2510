"""Define ``explain``, ``ops``, ``schema``, ``stubs``, ``init`` and ``recommend``."""

from __future__ import annotations

import json
import sys
from pathlib import Path as File
from typing import Annotated, Any, cast

import typer

from opendp_sim.api.recommend import QUESTIONS, recommend
from opendp_sim.api.templates import RECIPES, FirstLine, file_header, guess_recipe, recipe_text
from opendp_sim.cli._run import (
    AsJson,
    Force,
    Params,
    console,
    handled,
    plain_table,
    read_parameters,
    refuse_usage,
    say,
    say_json,
)
from opendp_sim.cli._stop import note_written
from opendp_sim.dsl.explain.explain import catalogue, explain, explain_stage, page_facts
from opendp_sim.dsl.files.write import check_writable
from opendp_sim.dsl.grammar.program import TEMPLATE
from opendp_sim.dsl.grammar.schema import json_schema
from opendp_sim.dsl.plan.plan import plan_file
from opendp_sim.dsl.run.overwrite import check_target
from opendp_sim.dsl.stubs import stubs, write_stubs


def explain_command(
    word: Annotated[
        str,
        typer.Argument(
            help="A mechanism, an error code, a word of a spec, a printed name, or a stage of --spec."
        ),
    ],
    spec: Annotated[str | None, typer.Option(help="A spec whose stage is meant.")] = None,
    param: Params = None,
    json_: AsJson = False,
) -> None:
    """Print the page of a mechanism, code, word or stage."""
    with handled(as_json_text=json_):
        if spec is not None:
            plan = plan_file(spec, read_parameters(param))
            page, facts = explain_stage(plan, word), {"stage": plan.plain()["stages"][word]}
        else:
            page, facts = explain(word), page_facts(word)
        if json_:
            say_json({"word": word, "page": page} | facts)
        else:
            say(page, lines=True)


def ops_command(json_: AsJson = False) -> None:
    """List every mechanism that a spec can name."""
    with handled(as_json_text=json_):
        found = catalogue()
        if json_:
            say_json(found)
            return
        rows = plain_table("step", "room", "what it does", "evidence")
        for entry in found:
            rows.add_row(entry["key"], entry["room"], entry["what"], entry["evidence"])
        console().print(rows)
        say("")
        for entry in found:
            if entry["room"] == "queries":
                say(f"{entry['key']:<15} asks a release of {', '.join(entry['with'])}")


def schema_text() -> str:
    """Return the JSON Schema as it is written to a file."""
    return json.dumps(json_schema(), indent=1, sort_keys=True) + "\n"


def schema_command(
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="Write it to this file.")
    ] = None,
    force: Force = False,
    check: Annotated[
        str | None, typer.Option(help="Compare with this file and fail when it differs.")
    ] = None,
    json_: AsJson = False,
) -> None:
    """Print the JSON Schema of specs, for editors.

    It is JSON with and without ``--json``.
    """
    with handled(as_json_text=json_):
        text = schema_text()
        if check is not None:
            have = File(check)
            if not have.exists() or have.read_text(encoding="utf-8") != text:
                raise refuse_usage(
                    "the schema of this version",
                    check,
                    f"run `opendp-sim schema --force -o {check}`.",
                )
            _say(json_, f"{check}: up to date", {"up_to_date": check})
        elif output is not None:
            check_target(File(output), force=force)
            File(output).write_text(text, encoding="utf-8")
            note_written(output)
            if json_:
                say_json({"wrote": output})
        elif json_:
            say_json(json.loads(text))
        else:
            say(text.rstrip(), lines=True, fold=False)


def stubs_command(
    write: Annotated[bool, typer.Option("--write", help="Write those that differ.")] = False,
    json_: AsJson = False,
) -> None:
    """Compare the type stubs with the mechanisms' records.

    For authors of mechanisms.
    """
    with handled(as_json_text=json_):
        if write:
            written = [str(file) for file in write_stubs()]
            note_written(*written)
            _say(json_, "\n".join(f"wrote {file}" for file in written), {"wrote": written})
            return
        have = {file: file.read_text("utf-8") if file.exists() else "" for file in stubs()}
        if have != stubs():
            raise refuse_usage(
                "the stubs of this version", "others", "run `opendp-sim stubs --write`."
            )
        _say(json_, "stubs: up to date", {"up_to_date": "stubs"})


def init_command(
    file: Annotated[str | None, typer.Argument(help="Where to write the template.")] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            help=f"What it is for: {', '.join(RECIPES)}. With --data, the file's header suggests one."
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="The file or folder of the records: .csv, .parquet, .arrow, .npz, .duckdb, ..."
        ),
    ] = None,
    first_line: Annotated[
        str | None,
        typer.Option(
            help="What the first line of a text file holds, names or record; default what its lines tell."
        ),
    ] = None,
    size: Annotated[
        int | None,
        typer.Option(min=1, max=10**12, help="About how many records, from public knowledge."),
    ] = None,
    epsilon: Annotated[float, typer.Option(help="Of one run.")] = 1.0,
    json_: AsJson = False,
) -> None:
    """Write a commented template.

    Its holes (???) fail `check` until they are filled in. The mechanism and its numbers are those of the
    least predicted error at this size and epsilon, as `recommend` ranks them.
    """
    with handled(as_json_text=json_):
        if file is None:
            _say(json_, _recipes(), {"recipes": RECIPES})
            if json_ or not (sys.stdin.isatty() and sys.stdout.isatty()):
                return
            recipe = recipe or typer.prompt("Which recipe", default="density")
            data = data or typer.prompt(
                "In which file are the records", default="", show_default=False
            )
            file = str(typer.prompt("Where to write the spec", default="spec.yaml"))
        path = File(file)
        header = file_header(path.parent / data, _stated(first_line)) if data else None
        names = header.names if header else ()
        guessed, reason = guess_recipe(names) if data and not recipe else ("blank", "")
        recipe = recipe or guessed
        if recipe not in RECIPES:
            raise refuse_usage(f"a recipe: {', '.join(RECIPES)}", recipe, "leave it out for blank.")
        if path.exists():
            raise refuse_usage("a new file", file, "choose another name, or remove the file.")
        check_writable(path, "FILE")
        text = recipe_text(recipe, data or None, TEMPLATE, header, size=size, epsilon=epsilon)
        path.write_text(text, encoding="utf-8")
        note_written(file)
        then = f"opendp-sim check {file}"
        said = f"wrote {file}; fill in the ??? and run `{then}`"
        if header and header.unsure:
            said += (
                f"\nthe first line of {data} may be a record, so nothing of it is in {file}: "
                "`--first-line names` takes its names, `--first-line record` leaves room for them"
            )
        elif names and header and header.kind == "csv":
            said += f"\nits columns are the first line of {data}"
        if header and header.tables:
            said += f"\nits `table` is one of {', '.join(map(ascii, header.tables))}"
        if reason:
            said += f"\nrecipe `{recipe}`, as {reason}; --recipe chooses another one"
        _say(json_, said, {"wrote": file, "next": then, "recipe": recipe})


def recommend_command(
    question: Annotated[str, typer.Argument(help=f"One of {', '.join(QUESTIONS)}.")],
    columns: Annotated[int, typer.Option(help="How many columns, each within 0 and 1.")] = 1,
    size: Annotated[
        int, typer.Option(help="About how many records, from public knowledge.")
    ] = 1000,
    epsilon: Annotated[float, typer.Option(help="Of this release.")] = 1.0,
    bandwidth: Annotated[
        float | None, typer.Option(help="Of densities; default a tenth of the range.")
    ] = None,
    norm: Annotated[str, typer.Option(help="Of distances: l1, l2 or l2_squared.")] = "l1",
    pure: Annotated[bool, typer.Option("--pure", help="Pure DP, in place of delta 1e-6.")] = False,
    spec: Annotated[bool, typer.Option("--spec", help="Print the spec of the first one.")] = False,
    json_: AsJson = False,
) -> None:
    """Rank mechanisms by predicted error.

    No data is opened. What cannot be predicted has no rank.
    """
    with handled(as_json_text=json_):
        words: dict[str, Any] = {"norm": norm, "bandwidth": bandwidth, "epsilon": epsilon}
        words |= {"measure": "pure"} if pure else {}
        found = recommend(question, columns, size=size, source="records.csv", **words)
        if json_:
            say_json(found.plain())
        elif spec:
            say(found.best.spec().rstrip(), lines=True, fold=False)
        else:
            say(repr(found), lines=True)


def _stated(first_line: str | None) -> FirstLine | None:
    """Return a stated kind of first line, or refuse another word."""
    if first_line not in (None, "names", "record"):
        raise refuse_usage(
            "--first-line names, or record",
            first_line,
            "of a line of texts nothing tells which it is.",
        )
    return cast("FirstLine | None", first_line)


def _recipes() -> str:
    lines = ["opendp-sim init FILE --recipe NAME [--data RECORDS]"]
    return "\n".join(lines + [f"  {name:<10} {line}" for name, line in RECIPES.items()])


def _say(as_json: bool, text: str, value: object) -> None:
    if as_json:
        say_json(value)
    elif text:
        say(text, lines=True)
