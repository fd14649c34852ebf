# The rig fails in words.
# expect: rig error: out of device memory
cat "$F/ready" "$F/failed"
cat >/dev/null
