# Answers something else.
# expect: rig error: answers Execute with Done
cat "$F/ready" "$F/done"
cat >/dev/null
