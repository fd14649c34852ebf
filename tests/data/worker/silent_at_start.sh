# Says nothing at all.
# expect: open error: does not stand
echo "last words" >&2
exec sleep 60
