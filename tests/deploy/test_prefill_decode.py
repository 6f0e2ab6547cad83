"""Files for roles apart say what their systems can read."""

from __future__ import annotations

import ast
import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.deploy.prefill_decode_schemas import (
    CONNECTOR,
    DEPLOYMENT,
    DYNAMO_FRONTEND,
    DYNAMO_WORKER,
    KV_EVENTS,
    LLM_D_PARAMETERS,
    SIDECAR,
    VLLM,
    VLLM_ROUTER,
)
from tests.deploy.started import allowed, ran, valued
from tests.deploy.test_files import DEPLOY, LLM_D, documents, sent, unknown

ROUTER_TEST = Path(__file__).parents[1] / "router/test_prefill_decode.py"
ROLES = {"prefill": "kv_producer", "decode": "kv_consumer"}


def test_a_server_takes_its_role_and_flags_that_vllm_has(tmp_path: Path) -> None:
    for role, kv_role in ROLES.items():
        given = {"ROLE": role, "MODEL": "m", "ADDRESS": "10.0.0.1"}
        arguments, variables = ran(
            tmp_path, "vllm/prefill-decode.sh", "vllm", "--port", "8000", **given
        )
        assert arguments[:2] == ["serve", "m"]
        said = valued(arguments)
        assert said.keys() <= VLLM
        assert said["--middleware"] == "tenuto_vllm.TurnMiddleware"
        assert "--enable-prompt-tokens-details" in said
        config = json.loads(said["--kv-transfer-config"])
        assert unknown(config, CONNECTOR) == []
        assert (config["kv_connector"], config["kv_role"]) == ("NixlConnector", kv_role)
        assert variables["PYTHONHASHSEED"] == "0"
        assert variables["VLLM_NIXL_SIDE_CHANNEL_HOST"] == "10.0.0.1"
        assert variables["VLLM_NIXL_SIDE_CHANNEL_PORT"].isdigit()


@pytest.mark.parametrize("script", ["vllm/prefill-decode.sh", "dynamo/prefill-decode.sh"])
def test_a_role_that_there_is_not_starts_nothing(script: str) -> None:
    env = {"PATH": os.environ["PATH"], "ROLE": "both", "MODEL": "m", "ADDRESS": "10.0.0.1"}
    told = subprocess.run(
        ["sh", str(DEPLOY / script)], env=env, capture_output=True, check=False, text=True
    )
    assert told.returncode == 2
    assert "ROLE is" in told.stderr


def test_the_two_roles_differ_in_nothing_but_the_connectors_role(tmp_path: Path) -> None:
    for script, program in (
        ("vllm/prefill-decode.sh", "vllm"),
        ("dynamo/prefill-decode.sh", "python"),
    ):
        one, other = (
            ran(tmp_path, script, program, ROLE=role, MODEL="m", ADDRESS="10.0.0.1")
            for role in ROLES
        )
        differing = {
            (first, second)
            for first, second in zip(one[0], other[0], strict=True)
            if first != second
        }
        configs = [pair for pair in differing if pair != ("prefill", "decode")]
        [(first, second)] = configs
        assert json.loads(first) | {"kv_role": ""} == json.loads(second) | {"kv_role": ""}


def test_vllm_router_is_started_as_it_is_where_its_real_mode_is_tested(tmp_path: Path) -> None:
    arguments, _ = ran(tmp_path, "vllm-router/prefill-decode.sh", "vllm-router")
    [tested] = [
        node
        for node in ast.walk(ast.parse(ROUTER_TEST.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name == "running"
    ]
    lists = [
        node.value for node in ast.walk(tested) if isinstance(node, ast.Assign | ast.AugAssign)
    ]
    words = [word for said in lists for word in ast.literal_eval(said)]
    workers = valued([*words, ""])
    said = valued(arguments)
    assert said.keys() | {"--prefill", "--decode"} == workers.keys()
    assert said["--policy"] == workers["--policy"]
    assert said.keys() <= VLLM_ROUTER


def test_dynamo_is_started_with_options_that_it_has(tmp_path: Path) -> None:
    script = "dynamo/prefill-decode.sh"
    arguments, _ = ran(tmp_path, script, "python", ROLE="frontend")
    assert arguments[:2] == ["-m", "dynamo.frontend"]
    said = valued(arguments)
    allowed(said, DYNAMO_FRONTEND)
    # It refuses the conditional mode without both.
    assert said["--router-mode"] == "kv"
    assert "--no-router-kv-events" not in said
    direct, _ = ran(tmp_path, script, "python", ROLE="frontend", ROUTER_MODE="direct")
    assert valued(direct) == {"--router-mode": "direct"}
    for role, kv_role in ROLES.items():
        given = {"ROLE": role, "MODEL": "m", "ADDRESS": "10.0.0.1"}
        arguments, variables = ran(tmp_path, script, "python", **given)
        assert arguments[:2] == ["-m", "dynamo.vllm"]
        said = valued(arguments)
        allowed(said, DYNAMO_WORKER)
        assert said["--disaggregation-mode"] == role
        config = json.loads(said["--kv-transfer-config"])
        assert unknown(config, CONNECTOR) == []
        assert config["kv_role"] == kv_role
        events = json.loads(said["--kv-events-config"])
        assert unknown(events, KV_EVENTS) == []
        assert events["enable_kv_cache_events"] is True
        assert variables["PYTHONHASHSEED"] == "0"


def test_llm_d_is_told_what_its_plugins_read() -> None:
    [config] = documents("llm-d/prefill-decode.yaml")
    assert (config["apiVersion"], config["kind"]) == ("llm-d.ai/v1alpha1", "EndpointPickerConfig")
    assert unknown(config, LLM_D) == []
    for plugin in config["plugins"]:
        known = LLM_D_PARAMETERS[plugin["type"]]
        assert unknown(plugin.get("parameters", {}), known) == [], plugin["type"]
    names = [plugin.get("name", plugin["type"]) for plugin in config["plugins"]]
    assert len(set(names)) == len(names)
    used = [
        plugin["pluginRef"]
        for profile in config["schedulingProfiles"]
        for plugin in profile["plugins"]
    ]
    assert set(used) <= set(names)
    [handler] = [one for one in config["plugins"] if one["type"] == "disagg-profile-handler"]
    [decider] = [one for one in config["plugins"] if one["type"] == "prefix-based-pd-decider"]
    assert handler["parameters"]["deciders"]["prefill"] in names
    # 0, its default, turns remote prefill off.
    assert decider["parameters"]["nonCachedTokens"] > 0


@pytest.mark.parametrize("role", ROLES)
def test_llm_d_keeps_a_session_on_both_sides_whatever_else_scores(role: str) -> None:
    [config] = documents("llm-d/prefill-decode.yaml")
    plugins = {plugin.get("name", plugin["type"]): plugin for plugin in config["plugins"]}
    [profile] = [one for one in config["schedulingProfiles"] if one["name"] == role]
    weights = {one["pluginRef"]: one.get("weight", 0) for one in profile["plugins"]}
    assert {f"{role}-filter", "max-score-picker", "prefix-cache-scorer"} <= weights.keys()
    [session] = [ref for ref in weights if plugins[ref]["type"] == "session-affinity-scorer"]
    assert 2 * weights[session] > sum(weights.values())
    said = plugins[session]["parameters"]
    # Without a profile it is the decode pod that a session is bound to.
    assert said.get("profileName", "decode") == role
    assert said["strategy"] == "session_id"
    assert {one["header"] for one in said["sessionIdConfig"]["sources"]} <= sent("llm-d")


def test_llm_ds_pods_are_started_as_the_script_starts_servers(tmp_path: Path) -> None:
    pods = documents("llm-d/prefill-decode-pods.yaml")
    assert [pod["metadata"]["name"] for pod in pods] == list(ROLES)
    for pod in pods:
        role = pod["metadata"]["name"]
        assert unknown(pod, DEPLOYMENT) == []
        template = pod["spec"]["template"]
        assert template["metadata"]["labels"] == pod["spec"]["selector"]["matchLabels"]
        assert template["metadata"]["labels"]["llm-d.ai/role"] == role
        [engine] = template["spec"]["containers"]
        given = {"ROLE": role, "MODEL": "MODEL", "ADDRESS": "10.0.0.1"}
        arguments, variables = ran(tmp_path, "vllm/prefill-decode.sh", "vllm", **given)
        assert engine["command"] == ["vllm", *arguments[:2]]
        said, script = valued(engine["args"]), valued(arguments)
        port = int(said.pop("--port"))
        config, scripts = (json.loads(one.pop("--kv-transfer-config")) for one in (said, script))
        assert (said, config) == (script, scripts)
        named = {one["name"]: one.get("value") for one in engine["env"]}
        assert {name: variables[name] for name, value in named.items() if value} == {
            name: value for name, value in named.items() if value
        }
        assert named.keys() == {name for name in variables if "NIXL" in name or "SEED" in name}
        assert port == engine["readinessProbe"]["httpGet"]["port"]
        assert port in {one["containerPort"] for one in engine["ports"]}


def test_llm_ds_sidecar_stands_before_the_decode_engine_and_waits_for_its_lease() -> None:
    prefill, decode = (
        pod["spec"]["template"]["spec"] for pod in documents("llm-d/prefill-decode-pods.yaml")
    )
    [sidecar] = decode["initContainers"]
    said = valued(sidecar["args"])
    allowed(said, SIDECAR)
    assert said["--kv-connector"] == "nixlv2"
    [engine], [source] = decode["containers"], prefill["containers"]
    assert said["--model-server-port"] == valued(engine["args"])["--port"]
    # The picker names a prefill pod by the pool's port, which is that of the sidecar.
    assert said["--port"] == valued(source["args"])["--port"]
    assert sidecar["restartPolicy"] == "Always"
    config = json.loads(valued(source["args"])["--kv-transfer-config"])
    lease_s = config["kv_connector_extra_config"]["kv_lease_duration"]
    waits_s = source["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert lease_s <= waits_s < prefill["terminationGracePeriodSeconds"]
