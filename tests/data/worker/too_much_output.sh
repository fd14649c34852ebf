# Sends more bytes than it announced.
# expect: rig error: raw bytes where
cat "$F/ready" "$F/too_much_output"
cat >/dev/null
