# A kernel never ends, and a grandchild holds the pipes.
# expect: hung
sleep 61 &
cat "$F/ready" "$F/launching"
exec sleep 62
