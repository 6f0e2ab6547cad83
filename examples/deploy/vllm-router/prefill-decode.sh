#!/bin/sh
# Prefill and decode apart, behind vLLM's own router. A session keeps its prefill and its decode
# worker, by a hash of X-Session-ID, and every turn of it is prefilled remotely. Clients speak the
# dialect `vllm-router-pd`, since headers stop here. The workers: vllm/prefill-decode.sh.
#
#   sh prefill-decode.sh --prefill http://10.0.0.1:8000 --prefill http://10.0.0.2:8000 \
#       --decode http://10.0.0.3:8000 --decode http://10.0.0.4:8000 --port 8080
#
# A worker that is gone is an error 500 for its sessions: nothing is tried again here.
exec vllm-router --vllm-pd-disaggregation --policy consistent_hash "$@"
