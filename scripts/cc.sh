#!/bin/sh
# The linker of builds for x86_64 Linux (.cargo/config.toml): the C compiler, with mold where it is installed.
# Linking the test programs takes seconds with mold, minutes with the linker of binutils.
if command -v mold >/dev/null 2>&1 && [ -z "${SLUICE_NO_MOLD:-}" ]; then
    exec "${CC:-cc}" -fuse-ld=mold "$@"
fi
exec "${CC:-cc}" "$@"
