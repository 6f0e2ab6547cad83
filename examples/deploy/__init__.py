"""Configurations of routers and proxies that our headers drive, and a way to start them here."""
