# Stops inside a frame and stays.
# expect: rig error: did nothing
cat "$F/ready" "$F/half"
exec sleep 60
