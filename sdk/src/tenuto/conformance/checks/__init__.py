"""The checks: each takes a recording and says whether one requirement holds in it. Pure."""
