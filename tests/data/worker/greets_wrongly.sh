# Greets with an answer to nothing.
# expect: open error: greets with Done
cat "$F/done"
cat >/dev/null
