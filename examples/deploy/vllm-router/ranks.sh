#!/bin/sh
# The router chooses the data-parallel rank too, and says so in X-data-parallel-rank. The servers
# take its word with TENUTO_TRUST_RANK=1; without it they choose the rank themselves.
#
#   RANKS=2 sh ranks.sh --worker-urls http://10.0.0.1:8000 http://10.0.0.2:8000 --port 8080
exec vllm-router --policy consistent_hash --health-check-interval-secs 5 \
    --cb-timeout-duration-secs 10 \
    --intra-node-data-parallel-size "${RANKS:?ranks of each server}" "$@"
