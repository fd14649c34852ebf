# The driver refuses the launch.
# expect: refused: too many threads
cat "$F/ready" "$F/refused"
cat >/dev/null
