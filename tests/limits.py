"""How long tests wait before they say that something hangs: no more than a guard, also under sanitizers."""

HANGS = 1800  #: seconds
