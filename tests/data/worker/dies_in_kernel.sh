# Dies in every launch: after the second time the kernel is blamed.
# expect: faulted: worker-died
cat "$F/ready" "$F/launching"
kill -SEGV $$
