# Announces a piece of 1 GiB.
# expect: rig error: at most
cat "$F/ready" "$F/huge_raw"
cat >/dev/null
