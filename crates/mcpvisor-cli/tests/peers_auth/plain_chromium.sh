#!/bin/sh
# The program that BROWSER names in the tests: Chromium as it is. It writes the last page to a file.
"$VISIT_CHROMIUM" --headless --no-sandbox --disable-gpu --disable-quic --disable-dev-shm-usage \
    --no-first-run --disable-background-networking --disable-component-update --disable-sync \
    --user-data-dir="$VISIT_PROFILE" --dump-dom "$1" >"$VISIT_PAGE.new"
mv "$VISIT_PAGE.new" "$VISIT_PAGE"
