# Comes from another build.
# expect: open error: use one build for both
cat "$F/other_version"
cat >/dev/null
