# Closes its stdout and lives on.
# expect: rig error: closed its stdout but lives on
cat "$F/ready"
exec sleep 60 >/dev/null
