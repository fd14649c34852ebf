# Cannot work here, and says why.
# expect: open error: no NVIDIA driver here
cat "$F/no_driver"
