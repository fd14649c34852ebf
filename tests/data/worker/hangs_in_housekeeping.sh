# Stops dead while no kernel runs: the rig's fault, not the candidate's.
# expect: rig error: did nothing
cat "$F/ready" "$F/housekeeping"
exec sleep 60
