#!/bin/sh
# Makes the store's URL of the password's file, so that it stands in no environment and no command line, then starts
# what was asked for. The password must be one that needs no quoting in a URL (letters and digits).
set -eu
if [ -n "${TUNER_DATABASE_HOST:-}" ] && [ -r /run/secrets/database_password ]; then
    umask 077
    printf 'postgresql://tuner:%s@%s:5432/tuner\n' "$(tr -d '\n' < /run/secrets/database_password)" \
        "$TUNER_DATABASE_HOST" > "$TUNER_DATABASE_URL_FILE"
fi
unset TUNER_DATABASE_HOST
exec "$@"
