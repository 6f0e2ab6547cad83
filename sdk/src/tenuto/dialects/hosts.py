"""Which dialect a host speaks, by its name alone. Pure.

A public API is sent what its own documentation asks for. Where that asks for nothing, or
was not found to ask for anything, it is `silent`: several answer 400 to a field that they do
not know (docs/dialects.md). Any other public host is `generic`, a private one `vllm`.
"""

from __future__ import annotations

import functools
import ipaddress

from tenuto.dialects.gateways import ROWS as _GATEWAYS
from tenuto.dialects.hosted import ROWS as _HOSTED
from tenuto.dialects.model import Dialect
from tenuto.dialects.routers import ROWS as _ROUTERS
from tenuto.dialects.servers import GENERIC, VLLM
from tenuto.dialects.servers import ROWS as _SERVERS

DIALECTS = {row.name: row for row in (*_SERVERS, *_ROUTERS, *_GATEWAYS, *_HOSTED)}

# Each name stands for the hosts below it too; a `*` in second place for any one label.
HOSTS = {
    "api.openai.com": "openai",
    "api.anthropic.com": "anthropic",
    "api.cloudflare.com": "cloudflare",
    "api.fireworks.ai": "fireworks",
    "api.llmgateway.io": "llmgateway",
    "api.mistral.ai": "mistral",
    "api.x.ai": "xai",
    "opencode.ai": "opencode-go",
    "openrouter.ai": "openrouter",
    "subconscious.dev": "subconscious",
    # Azure documents prompt_cache_key and answers it with 400 for some of its models:
    # https://github.com/vectorize-io/hindsight/issues/3518
    **dict.fromkeys(
        (
            "openai.azure.com",
            "cognitiveservices.azure.com",
            "services.ai.azure.com",
            "models.ai.azure.com",
            "inference.ai.azure.com",
        ),
        "silent",
    ),
    **dict.fromkeys(
        (
            "ai-gateway.vercel.sh",
            "api.ai21.com",
            "api.baseten.co",
            "api.cerebras.ai",
            "api.cohere.ai",
            "api.cohere.com",
            "api.deepinfra.com",
            "api.deepseek.com",
            "api.featherless.ai",
            "api.githubcopilot.com",
            "api.groq.com",
            "api.hyperbolic.xyz",
            "api.inference.net",
            "api.kimi.com",
            "api.lambda.ai",
            "api.minimax.io",
            "api.moonshot.ai",
            "api.moonshot.cn",
            "api.novita.ai",
            "api.perplexity.ai",
            "api.portkey.ai",
            "api.replicate.com",
            "api.sambanova.ai",
            "api.scaleway.ai",
            "api.siliconflow.cn",
            "api.siliconflow.com",
            "api.studio.nebius.com",
            "api.together.ai",
            "api.together.xyz",
            "api.tokenfactory.nebius.com",
            "api.z.ai",
            "api.aws",
            "ark.cn-beijing.volces.com",
            "bedrock-runtime.*.amazonaws.com",
            "dashscope.aliyuncs.com",
            "dashscope-intl.aliyuncs.com",
            "gateway.ai.cloudflare.com",
            "googleapis.com",
            "inference.baseten.co",
            "integrate.api.nvidia.com",
            "models.github.ai",
            "oai.helicone.ai",
            "ollama.com",
            "open.bigmodel.cn",
            "openai.api.deepinfra.com",
            "router.huggingface.co",
        ),
        "silent",
    ),
}
# RFC 2606 and RFC 6762 names, and the suffixes that private networks use.
_PRIVATE_SUFFIXES = (
    *(".localhost", ".local", ".internal", ".lan", ".home.arpa", ".svc", ".ts.net"),
    *(".test", ".example", ".invalid"),
)


@functools.lru_cache(maxsize=256)
def for_host(host: str) -> Dialect:
    """Return the dialect of a host: public APIs by the table, private hosts `vllm`."""
    labels = host.lower().rstrip(".").split(".")
    for start in range(len(labels)):
        below = labels[start:]
        name = HOSTS.get(".".join(below)) or HOSTS.get(".".join([below[0], "*", *below[2:]]))
        if name is not None:
            return DIALECTS[name]
    return VLLM if _is_private(".".join(labels)) else GENERIC


def _is_private(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "." not in host or host.endswith(_PRIVATE_SUFFIXES)
    # Private, loopback and link-local, and 100.64.0.0/10, which VPNs use (RFC 6598).
    return not address.is_global
