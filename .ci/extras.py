"""Installs each extra alone and runs its smallest real job, so that none leans on what another brings.

    python .ci/extras.py            # every extra of pyproject.toml but `dev`, two at a time
    python .ci/extras.py sign lsp   # these

One environment holds the package without extras. Each extra gets an environment over it, to which only
its own packages are added. A line an extra; the exit code is 1 when one fails. An extra whose packages
cannot be downloaded is not judged, and its line says so.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 600
"""Seconds until a job, or an installation, is a failure."""
AWAY = re.compile(
    r"NewConnectionError|ConnectTimeout|ReadTimeout|NameResolution|ProxyError|Connection(Reset|Refused)"
    r"|HTTP error 5\d\d|Network is unreachable"
)
"""What pip says where no index answers; any other failure of an installation is the extra's."""
SPEC = """
spec: opendp_sim/1
name: alone
data:
  people:
    source: {%s: people.%s}
    columns: {x: {dtype: float64, bounds: [-1, 1]}}
    ledger: {file: "%s", limit: {rho: 1000.0}}
privacy:
  unit: {add_remove: 1, of: row}
  measure: zcdp
  budget: {rho: 100}
flow:
  noisy:
    from: people
    steps: [select: {features: x}, quantize: {bits: 8}, moments_sketch: {}]
    release: {noise: gaussian, spend: 100%%}
outputs:
  sums: {from: noisy, save: sums.npz}
"""


def cli(*words: object) -> str:
    """Run a command as a user would; return what it printed."""
    call = [sys.executable, "-m", "opendp_sim", *map(str, words)]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def written(ledger: str = "alone.ledger") -> Path:
    """Write a dataset and a program over it."""
    Path("people.csv").write_text("x\n" + "0.5\n-0.25\n" * 100)
    spec = Path("alone.yaml")
    spec.write_text(SPEC % ("csv", "csv", ledger))
    return spec


# --- one smallest job an extra --------------------------------------------------------------------


def parquet() -> str | None:
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.table({"x": [0.5, -0.25] * 100}), "people.parquet")
    Path("alone.yaml").write_text(SPEC % ("parquet", "parquet", "alone.ledger"))
    cli("ledger", "new", "alone.yaml")
    cli("apply", "alone.yaml")
    assert Path("sums.npz").exists()


def dask() -> str | None:
    cli("engine", "check", "dask")


def spark() -> str | None:
    if shutil.which("java") is None:
        return "no Java"
    cli("engine", "check", "spark")
    return None


def connect() -> str | None:
    if shutil.which("java") is None:
        return "no Java"
    with connect_server() as address:
        cli("engine", "check", address)
    return None


@contextmanager
def connect_server() -> Iterator[str]:
    """Start the server of Spark Connect that the package brings."""
    import pyspark

    home = Path(pyspark.__file__).parent
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    told = {"address": "127.0.0.1", "port": port}
    words = [w for k, v in told.items() for w in ("--conf", f"spark.connect.grpc.binding.{k}={v}")]
    words += ["--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.ui.enabled=false"]
    env = os.environ | {"SPARK_HOME": str(home), "SPARK_NO_DAEMONIZE": "1"}
    with Path("server.log").open("wb") as log:
        server = subprocess.Popen(
            [home / "sbin" / "start-connect-server.sh", "--master", "local[2]", *words],
            env=env | {"PYSPARK_PYTHON": sys.executable},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert server.poll() is None, Path("server.log").read_text()
                time.sleep(0.5)
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, 9)
        server.wait()


def fast() -> str | None:
    import numpy as np

    from opendp_sim.core.arithmetic.compiled import TALLIED

    ids, labels, out = np.array([[0, 2, 2]]), np.zeros(0, np.int64), np.zeros((1, 1, 4), np.int64)
    loop = TALLIED.after(2**40)  # more cells than it waits for
    assert loop is not None, "no kernel was compiled"
    loop(ids, labels, out)
    assert out.tolist() == [[[1, 0, 2, 0]]], out


def postgres() -> str | None:
    import psycopg  # noqa: F401 - it is what the extra brings

    sys.path.insert(0, str(ROOT / "tests" / "accounting"))
    import _server

    if not _server.FOUND:
        return "no PostgreSQL server"
    with _server.running():
        spec = written("postgresql:one/alone")
        cli("ledger", "new", spec)
        cli("apply", spec)
        assert "spent" in cli("ledger", "show", "postgresql:one/alone")
    return None


def sign() -> str | None:
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    own = (form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    Path("key.pem").write_bytes(Ed25519PrivateKey.generate().private_bytes(*own))
    spec = written()
    cli("ledger", "new", spec)
    cli("apply", spec, "--sign", "key.pem")
    assert "are signed by the key" in cli("verify", "sums.npz.certificate.json")


def sklearn() -> str | None:
    import numpy as np

    from opendp_sim.sklearn import DPNearestCentroid

    x, y = np.repeat([[-1.0, -1.0], [1.0, 1.0]], 200, axis=0), np.repeat([0, 1], 200)
    model = DPNearestCentroid(epsilon=5.0, bounds=(-2.0, 2.0), classes=[0, 1]).fit(x, y)
    assert model.predict(x[[0, -1]]).tolist() == [0, 1]


def plot() -> str | None:
    cli("plot", written(), "-o", "alone.png", "--kind", "privacy")
    assert Path("alone.png").read_bytes().startswith(b"\x89PNG")


def lsp() -> str | None:
    params = {"processId": None, "rootUri": None, "capabilities": {}}
    asked = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
    call = [sys.executable, "-m", "opendp_sim", "lsp"]
    with subprocess.Popen(call, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin
        assert server.stdout
        server.stdin.write(f"Content-Length: {len(asked)}\r\n\r\n{asked}".encode())
        server.stdin.flush()
        length = int(server.stdout.readline().split(b":")[1])
        while server.stdout.readline().strip():
            pass
        answer = json.loads(server.stdout.read(length))
        server.kill()
    assert answer["result"]["capabilities"]["hoverProvider"], answer


def studio() -> str | None:
    import threading
    from urllib.request import urlopen

    from starlette.responses import PlainTextResponse
    from starlette.routing import Route, Router

    from opendp_sim.web.guard import Guard
    from opendp_sim.web.server import address_of, bound_socket, server_of

    bound = bound_socket("127.0.0.1", 0)
    app = Router([Route("/", lambda _: PlainTextResponse("here"))])
    server = server_of(Guard(app, [address_of(bound)]))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    try:
        with urlopen(f"http://{address_of(bound)}/") as answer:
            assert answer.read() == b"here"
    finally:
        server.should_exit = True
        thread.join()


def audit() -> str | None:
    # The accountant of subsampled votes: without the extra nothing of this program is bound.
    assert "not refuted" in cli("audit", ROOT / "specs" / "digits-private-knn.yaml")


def testing() -> str | None:
    shutil.copy(ROOT / "tests" / "plugin" / "corners.py", "corners.py")
    Path("test_corners.py").write_text(
        "import corners, opendp.prelude as dp, pytest\n"
        "from hypothesis import settings\n"
        "from opendp_sim.domains.metrics import Symmetric\n"
        "from opendp_sim.domains.rows import GridRows\n"
        "from opendp_sim.testing import Case, laws_about\n"
        "from opendp_sim.testing.strategies import grid_pairs\n"
        "grid = GridRows(width=2, unit=0.1, lower=(-9, -9), upper=(9, 9))\n"
        "dp.enable_features('contrib')\n"
        "settings.register_profile('slow', deadline=None)\n"
        "settings.load_profile('slow')\n"
        "case = Case(corners.CornerCounts(), grid, Symmetric(), grid_pairs(grid))\n"
        "laws = [law for law in laws_about(case) if 'maps' in law.__module__]\n"
        "@pytest.mark.parametrize('law', laws, ids=lambda law: law.__name__)\n"
        "def test_law(law): law(case)\n"
    )
    call = [sys.executable, "-m", "pytest", "-q", "test_corners.py"]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout, done.stdout


def examples() -> str | None:
    subprocess.run([sys.executable, ROOT / "examples" / "pate_digits.py"], check=True)


def docs() -> str | None:
    site = Path("site")
    site.mkdir()
    (site / "conf.py").write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT / 'docs')!r})\n"
        "extensions = ['myst_nb', 'formulas']\nhtml_theme = 'furo'\nhtml_math_renderer = 'mathml'\n"
        "myst_enable_extensions = ['dollarmath']\nnb_execution_mode = 'off'\n"
    )
    (site / "index.md").write_text("# A page\n\nWith a formula, $e^{\\varepsilon}$.\n")
    call = [sys.executable, "-m", "sphinx", "-W", "-q", "-b", "html", "site", "made"]
    subprocess.run(call, check=True)
    assert "<math" in Path("made/index.html").read_text()


def gpu() -> None:
    """Compile the kernels, which needs no card; on a card, prove it."""
    from cupy_backends.cuda.libs import nvrtc

    from opendp_sim.core.device import device_named
    from opendp_sim.core.device.cuda import KERNELS, OPTIONS
    from opendp_sim.core.errors import ParameterError

    for card in ("compute_80", "compute_90", "compute_100"):
        program = nvrtc.createProgram(KERNELS, "kernels.cu", (), ())
        nvrtc.compileProgram(program, (*OPTIONS, f"-arch={card}"))
        assert b"count_cells" in nvrtc.getPTX(program), card
    with suppress(ParameterError):  # no card
        device_named("cuda")


JOBS: dict[str, Callable[[], str | None]] = {
    job.__name__: job
    for job in (
        *(gpu, spark, connect, dask, audit, docs, testing, parquet, fast, postgres, sign, sklearn),
        *(plot, lsp, studio, examples),
    )
}
"""Slow ones first. A job returns why it was not done, or None."""


# --- environments ---------------------------------------------------------------------------------


def run(call: list[object], **more: object) -> subprocess.CompletedProcess[str]:
    """Run a command in a clean environment; return what it printed, both streams together."""
    env = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        [str(word) for word in call], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, check=False, **more,
    )  # fmt: skip


def site_of(python: Path) -> Path:
    """Return the folder that an environment's packages are in."""
    return Path(run([python, "-c", "import site; print(site.getsitepackages()[0])"]).stdout.strip())


def alone(extra: str, base: Path, wheel: Path, work: Path) -> bool:
    """Install an extra over the base, run its job, print its line; return whether it is good."""
    begun, place = time.monotonic(), work / extra
    python = place / "bin" / "python"
    run([sys.executable, "-m", "venv", "--without-pip", place])
    (site_of(python) / "base.pth").write_text(f"{site_of(base)}\n")
    job = place / "job"
    job.mkdir()
    try:
        pip = [base, "-m", "pip", "--python", python, "install", "--quiet", f"{wheel}[{extra}]"]
        done = run(pip, timeout=LIMIT)
        if done.returncode and AWAY.search(done.stdout):
            print(f"extra {extra}: not judged, its packages cannot be downloaded", flush=True)
            return True
        if not done.returncode:
            done = run([python, __file__, "--job", extra], cwd=job, timeout=LIMIT)
        good, said = not done.returncode, done.stdout
    except subprocess.TimeoutExpired as late:
        good, said = False, f"not finished in {LIMIT} s\n{(late.stdout or b'')[-2000:]!r}"
    last = said.strip().splitlines()[-1:] if good else []
    why = last[0].partition("not run: ")[2] if last else ""
    took = f"{time.monotonic() - begun:.0f} s"
    word = f"not run, {why}" if why else f"its job ran in {took}" if good else "FAILED"
    tail = "" if good else "\n" + "\n".join(said.strip().splitlines()[-25:])
    print(f"extra {extra}: {word}{tail}", flush=True)
    shutil.rmtree(place, ignore_errors=True)
    return good


def main(names: list[str]) -> int:
    """Run the jobs of extras by name, or of all."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = set(declared["optional-dependencies"]) - {"dev"}
    if extras != set(JOBS):
        print(f"extras without a job, or jobs without an extra: {sorted(extras ^ set(JOBS))}")
        return 1
    with tempfile.TemporaryDirectory(prefix="extras-") as folder:
        work = Path(folder)
        work.chmod(0o755)  # a server of another user starts in it
        base = work / "base" / "bin" / "python"
        run([sys.executable, "-m", "venv", work / "base"])
        done = run([base, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", work, ROOT])
        wheels = list(work.glob("opendp_sim-*.whl"))
        if not done.returncode:
            done = run([base, "-m", "pip", "install", "--quiet", *wheels])
        if done.returncode:
            away = AWAY.search(done.stdout)
            print("extras: not judged, nothing can be downloaded" if away else done.stdout)
            return 0 if away else 1
        with ThreadPoolExecutor(2) as pool:
            made = pool.map(lambda n: (n, alone(n, base, wheels[0], work)), names or list(JOBS))
            failed = [name for name, good in made if not good]
    if failed:
        print(f"extras that do not stand alone: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--job"]:
        left = JOBS[sys.argv[2]]()
        if left:
            print(f"not run: {left}")
    else:
        sys.exit(main(sys.argv[1:]))
