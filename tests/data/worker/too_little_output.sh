# Announces more bytes than it sends.
# expect: rig error: no answer within
cat "$F/ready" "$F/too_little_output"
exec sleep 60
