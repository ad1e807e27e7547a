#!/usr/bin/env bash
# Tests that a program outside the tree compiles, links and runs against what is installed: every
# public header, the library and lumen.pc.
#
#   scripts/check_install.sh BUILD_DIRECTORY PREFIX COMPILER…
set -euo pipefail
build=$1 prefix=$2
shift 2
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

meson install -C "$build" --no-rebuild --quiet --tags devel --destdir "$stage/root"
pc=$(find "$stage/root" -name lumen.pc)
lumen_flags() {
  PKG_CONFIG_PATH=$(dirname "$pc") pkg-config --define-variable=prefix="$stage/root$prefix" \
    --cflags --libs lumen
}

cd "$stage"
{
  "$root/scripts/public_headers.py" "$root" | sed 's/.*/#include "&"/'
  cat <<'PROGRAM'
#include <cstdio>
int main() {
  const lumen::graph::Tensor x = lumen::graph::scalar(20.0f);
  std::printf("%g, %zu models\n", static_cast<double>(lumen::ops::add(x, x).item()),
              lumen::models::model_list().size());
}
PROGRAM
} >program.cc
# shellcheck disable=SC2046  # a list of flags
"$@" -std=c++20 -O0 -Wall -Wextra -Wpedantic -Werror program.cc -o program $(lumen_flags)
./program
