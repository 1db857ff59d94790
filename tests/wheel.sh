#!/usr/bin/env bash
# Source archive and wheel of this checkout, and a stream run by the wheel in a new environment, in another folder.
# Dependencies come from the index at the versions of requirements.lock.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

"${PYTHON:-python3}" -m venv "$place/env"
bin=$place/env/bin
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_QUIET=1
"$bin/pip" install 'setuptools>=77' wheel
git ls-files -z --cached --others --exclude-standard | tar --null --files-from=- -c | (mkdir "$place/copy" && tar -x -C "$place/copy")

cd "$place/copy" # a build leaves files beside what it reads
"$bin/python" -c 'import sys; from setuptools import build_meta as b; b.build_sdist(sys.argv[1])' "$place/dist" >"$place/log" 2>&1 ||
  { cat "$place/log"; exit 1; }
mkdir "$place/source"
tar -xzf "$place"/dist/*.tar.gz -C "$place/source" --strip-components=1
for name in tests docs examples benchmarks CITATION.cff SECURITY.md; do
  test -e "$place/source/$name" || { echo "the source archive has no $name"; exit 1; }
done

cd "$place/source" # so that the wheel is made of the archive alone
"$bin/python" -c 'import sys; from setuptools import build_meta as b; b.build_wheel(sys.argv[1])' "$place/dist" >"$place/log" 2>&1 ||
  { cat "$place/log"; exit 1; }
"$bin/pip" install --no-compile --constraint "$root/requirements.lock" "$place"/dist/*.whl

cp -r "$root/examples" "$place/examples"
rm -rf "$place"/examples/*/state* "$place"/examples/*/releases*
cd "$place"
unset PYTHONPATH
stream=examples/evictions/stream.toml
"$bin/python" -c 'import sys, synthstream; assert synthstream.__file__.startswith(sys.argv[1]), synthstream.__file__' "$place/env"
"$bin/synthstream" --version
"$bin/synthstream" plan $stream >/dev/null
"$bin/synthstream" run $stream --yes --until 2011-01-15 >/dev/null
"$bin/synthstream" sample $stream -n 3
"$bin/synthstream" report $stream -o report.html >/dev/null
"$bin/synthstream" describe $stream >/dev/null
"$bin/synthstream" verify $stream
"$bin/python" -c 'from importlib.resources import files; (files("synthstream.publish") / "manifest.schema.json").read_bytes()'
echo "The wheel works: $(basename "$place"/dist/*.whl)"
