# Does all that is asked.
# expect: completed
cat "$F/ready" "$F/housekeeping" "$F/launching" "$F/housekeeping" "$F/executed"
cat >/dev/null
