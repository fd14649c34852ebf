# Says a hundred times what it does next, then does it.
# expect: completed
cat "$F/ready"
i=0; while [ $i -lt 100 ]; do cat "$F/launching"; i=$((i+1)); done 2>/dev/null
cat "$F/executed"
cat >/dev/null
