# Floods stderr for ever; the clock does not wait for it.
# expect: hung
cat "$F/ready" "$F/launching"
yes "still working" >&2
