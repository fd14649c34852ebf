# A kernel never ends.
# expect: hung
cat "$F/ready" "$F/launching"
exec sleep 60
