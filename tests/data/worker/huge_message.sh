# Announces a message of 4 GiB.
# expect: rig error: at most
cat "$F/ready" "$F/huge_message"
cat >/dev/null
