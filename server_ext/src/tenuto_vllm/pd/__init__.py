"""One host's prefill and decode servers behind one address: each turn prefilled where it is best.

`tenuto_vllm.pd.app.App` is an ASGI application in front of real vLLM servers with the NIXL
connector. Who has a router asks it with `POST /tenuto/place`, or emits a
decision itself (`tenuto_vllm.placement.split`).
"""
