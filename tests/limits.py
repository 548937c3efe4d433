"""How long tests wait before they say that something hangs: no more than a guard, on busy machines and under sanitizers."""

HANGS = 1800  #: seconds
