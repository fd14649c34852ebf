# Sends a well-formed frame that holds nothing known.
# expect: rig error: does not decode
cat "$F/ready" "$F/undecodable"
cat >/dev/null
