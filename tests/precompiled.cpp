// A source of the target that compiles tests/precompiled.h.
