"""The demo: three agents on a real engine, and what it needs to start one."""
