# Dies while no kernel runs, every time.
# expect: rig error: the worker ended (exit code 9)
cat "$F/ready" "$F/housekeeping"
exit 9
