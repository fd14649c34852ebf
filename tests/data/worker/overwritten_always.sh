# expect: rig error: device cuda:0: uploaded inputs change while no kernel runs
cat "$F/ready" "$F/overwritten" "$F/overwritten" "$F/overwritten"; cat >/dev/null
