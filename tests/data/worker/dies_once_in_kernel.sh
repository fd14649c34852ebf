# Dies in the first launch only: nobody is blamed.
# expect: completed
cat "$F/ready" "$F/launching"
if mkdir "$D/died" 2>/dev/null; then kill -KILL $$; fi
cat "$F/executed"
cat >/dev/null
