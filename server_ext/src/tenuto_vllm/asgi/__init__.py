"""The HTTP side of the extension: pure ASGI middleware, one responder per request."""
