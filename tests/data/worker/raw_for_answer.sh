# Sends raw bytes where an answer is due.
# expect: rig error: raw bytes where an answer was due
cat "$F/ready" "$F/raw"
cat >/dev/null
