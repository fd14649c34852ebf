# Ends before it greets; its stderr is told.
# expect: open error: libcuda is broken
echo "libcuda is broken" >&2
exit 3
