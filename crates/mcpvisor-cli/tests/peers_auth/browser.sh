#!/bin/sh
# The program that BROWSER names in the tests: a script that plays the person.
exec "$VISIT_NODE" "$VISIT_SCRIPT" "$1"
