#!/bin/sh
# vLLM's own tier in host memory, behind leases. It runs on CUDA, ROCm and XPU, and not on CPU.
#
#   MODEL=... GIB=64 sh native.sh --port 8000
exec vllm serve "${MODEL:?the model to serve}" \
    --middleware tenuto_vllm.TurnMiddleware --scheduler-cls tenuto_vllm.TurnScheduler \
    --kv-offloading-backend native --kv-offloading-size "${GIB:?GiB of host memory in all}" "$@"
