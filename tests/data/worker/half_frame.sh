# Ends inside a frame, every time.
# expect: rig error: bytes into a frame
cat "$F/ready" "$F/half"
