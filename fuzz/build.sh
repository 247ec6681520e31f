#!/bin/bash
# Builds all targets into $OUT, as OSS-Fuzz wants it; the Python ones, and the seeds, only there.
# fuzz/guided.py calls it for the C targets.
set -eu
project=${PROJECT:-$SRC/redlock-fast}

compile() {  # NAME SOURCE...
    local name=$1 objects=$OUT/$1.objects source
    shift
    mkdir -p "$objects"
    for source in "$project/fuzz/$name.c" "$@"; do
        # The flags are words.
        # shellcheck disable=SC2086
        $CC $CFLAGS -std=c11 -D_GNU_SOURCE -DGUIDED -pthread -Wall -Wextra -include "$project/fuzz/system.h" \
            -c "$source" -o "$objects/$(basename "$(dirname "$source")")-$(basename "$source").o"
    done
    # shellcheck disable=SC2086
    $CXX $CXXFLAGS -pthread "$objects"/*.o -o "$OUT/$name" $LIB_FUZZING_ENGINE
    rm -r "$objects"
}

mapfile -t sources < <(find "$project/src" -name '*.c' ! -name _native.c | sort)
compile reply
compile hub "${sources[@]}"

[ "${FUZZING_LANGUAGE:-c}" = python ] || exit 0

pip3 install "$project"
for target in resp url toml; do
    compile_python_fuzzer "$project/fuzz/fuzz_$target.py" --collect-submodules redlock_fast
done
for folder in "$project"/fuzz/corpus/*; do
    name=$(basename "$folder")
    [ -e "$OUT/$name" ] || name=fuzz_$name
    (cd "$folder" && python3 -m zipfile -c "$OUT/${name}_seed_corpus.zip" ./*)
done
for target in reply hub fuzz_resp; do cp "$project/fuzz/reply.dict" "$OUT/$target.dict"; done
