# Prints text where frames are due.
# expect: rig error: not a frame
cat "$F/ready"
echo "PASSED"
cat >/dev/null
