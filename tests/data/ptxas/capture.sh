#!/bin/sh
# Captures what ptxas says about each .ptx in a version's folder: capture.sh PTXAS FOLDER
# Options stand in NAME.args where they differ from -arch=sm_90a.
set -u
cd "$2" || exit 1
for file in *.ptx; do
  name=${file%.ptx}
  args=-arch=sm_90a
  [ -f "$name.args" ] && args=$(cat "$name.args")
  # shellcheck disable=SC2086 # options are separate words
  "$1" -v $args "$file" -o /dev/null 2>"$name.stderr"
done
