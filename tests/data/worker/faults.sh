# A kernel breaks the context; the worker says so and retires.
# expect: faulted: cuda-700
cat "$F/ready" "$F/launching" "$F/faulted"
