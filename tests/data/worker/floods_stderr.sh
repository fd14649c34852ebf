# Floods stderr all the while and works all the same.
# expect: completed
yes "warning: nothing is wrong" >&2 &
cat "$F/ready" "$F/launching"
sleep 0.1
cat "$F/executed"
cat >/dev/null
