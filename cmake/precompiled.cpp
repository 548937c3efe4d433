// The target that compiles precompiled.h needs a source.
