#!/bin/sh
# The Rust walls: what each crate may depend on, its build-time macros included.
# thunder-core and thunder-wire touch nothing of the world, and only thunder-py knows Python.
set -eu

allow() {
    crate=$1
    shift
    allowed="$crate $*"
    for name in $(cargo tree --quiet --package "$crate" --edges normal --prefix none --format '{p}' |
        cut -d ' ' -f 1 | sort -u); do
        case " $allowed " in
        *" $name "*) ;;
        *)
            echo "wall: $crate may not depend on $name (rust/walls.sh lists what it may)" >&2
            exit 1
            ;;
        esac
    done
}

macros="thiserror-impl proc-macro2 quote syn unicode-ident"
allow thunder-core thiserror slab $macros
allow thunder-wire thiserror memchr xxhash-rust wide safe_arch bytemuck $macros
allow thunder-sim thunder-core thiserror slab $macros
