"""Serve a folder over HTTP, and draw tokens for who may ask."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from opendp_sim.cli._progress import progress
from opendp_sim.cli._run import AsJson, handled, plural, refuse_usage, say, say_json
from opendp_sim.cli._stop import note_charge
from opendp_sim.dsl.run.session import Served, serve
from opendp_sim.web import require_web

TOKENS = "tokens.json"


class _Serve(TyperGroup):
    """Take a folder where no subcommand is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read ``serve FOLDER`` as ``serve folder FOLDER``."""
        if args and args[0] not in (*self.commands, "--help", "-h"):
            args = ["folder", *args]
        return super().parse_args(ctx, args)


serve_app = typer.Typer(
    name="serve",
    cls=_Serve,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Serve releases and sessions of a folder over HTTP.\n\n`opendp-sim serve FOLDER` is short for "
    "`opendp-sim serve folder FOLDER`. Needs the extra `studio`.",
)
Tokens = Annotated[
    Path | None, typer.Option(help="The file of tokens; default FOLDER/tokens.json.")
]


@serve_app.command("folder")
def serve_folder(
    folder: Annotated[Path, typer.Argument(help="Releases, specs of sessions and ledgers.")],
    tokens: Tokens = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 is any free one.")] = 8080,
    name: Annotated[
        list[str] | None,
        typer.Option(help="A Host header to answer to, as a proxy sends it; may be repeated."),
    ] = None,
    rate: Annotated[
        float, typer.Option(min=0.1, help="Requests a second of one name, with bursts of twice it.")
    ] = 10.0,
    without_ledger: Annotated[
        bool, typer.Option("--without-ledger", help="Serve sessions that no ledger counts, too.")
    ] = False,
    json_: AsJson = False,
) -> None:
    """Answer over HTTP until SIGTERM.

    Releases whose certificate verifies are free to ask; sessions that were started (`opendp-sim apply`)
    charge each question before its answer leaves, once for each Idempotency-Key. Nothing is charged by
    starting. TLS is a proxy's. SIGTERM: questions that were taken are answered, then it ends (143).
    """
    with handled(as_json_text=json_), ExitStack() as stack:
        require_web()
        from opendp_sim.serve.application import Application  # noqa: PLC0415 - needs the extra
        from opendp_sim.serve.folder import list_folder  # noqa: PLC0415
        from opendp_sim.serve.tokens import Tokens as Known  # noqa: PLC0415
        from opendp_sim.web import server  # noqa: PLC0415

        if not server.is_loopback(host) and not name:
            raise refuse_usage(
                "--name with --host",
                host,
                "name the hosts that clients ask for, such as a proxy's.",
            )
        with progress("looking"):
            found = list_folder(folder, without_ledger=without_ledger)
            known = Known(tokens or folder / TOKENS, rate=rate, burst=2 * rate)
            served: dict[str, Served] = {}
            opened = stack.enter_context(ExitStack())  # until the application closes them
            for one in found.sessions.values():
                session = serve(one.plan, one.output, charged=note_charge)
                served[one.name] = opened.enter_context(session)
        bound = stack.enter_context(server.bound_socket(host, port))
        address = server.address_of(bound)
        hosts = [*(name or ()), address, *_local(address)]
        application = Application(found, served, known, hosts, charged=note_charge)
        stack.callback(application.close)
        opened.pop_all()
        if json_:
            say_json({"url": f"http://{address}/", "left_out": found.left_out})
        else:
            _say_open(address, found)
        server.run_server(application.guarded, bound)


def _local(address: str) -> list[str]:
    """Return the name of this machine for a loopback address."""
    host, _, port = address.rpartition(":")
    return [f"localhost:{port}"] if host in ("127.0.0.1", "[::1]") else []


def _say_open(address: str, found: Any) -> None:
    say(f"serving   http://{address}/")
    counts = (
        plural(len(found.releases), "release"),
        plural(len(found.sessions), "session"),
        plural(len(found.ledgers), "ledger"),
    )
    say(f"holds     {', '.join(counts)}")
    for file, why in found.left_out.items():
        say(f"left out  {file}: {why}")


@serve_app.command("token")
def serve_token(
    name: Annotated[str, typer.Argument(help="Who asks, as letters, digits and . _ @ -.")],
    role: Annotated[
        Literal["analyst", "curator", "officer", "operator"],
        typer.Option(
            help="analyst: asks; officer, curator: read reports and ledgers; operator: starts and stops "
            "sessions."
        ),
    ] = "analyst",
    tokens: Annotated[Path, typer.Option(help="The file of tokens.")] = Path(TOKENS),
    days: Annotated[int, typer.Option(min=1, max=3650, help="Days until it ends.")] = 90,
    json_: AsJson = False,
) -> None:
    """Draw a token, print it once, and keep its sha256."""
    with handled(as_json_text=json_):
        require_web()
        from opendp_sim.serve.tokens import issue  # noqa: PLC0415 - needs the extra

        token = issue(tokens, name, role, days)
        if json_:
            say_json({"token": token, "name": name, "role": role})
        else:
            say(token)
