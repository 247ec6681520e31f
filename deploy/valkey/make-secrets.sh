#!/bin/sh
# make-secrets.sh FOLDER: what masters and services need to know, and nobody else.
#
#   users.acl          for the masters: users, with the hashes of the passwords
#   redlock-password   for services and for health checks
#   admin-password     for people; keep it elsewhere
#
# A password that is there already is kept: run it again when users.acl has changed. For a new one rename the
# old to redlock-password-before, which is good, too, until that file is gone and this has run again.
# Files are written in place, so that containers that have one mounted see the new one; then ACL LOAD makes
# the master read it.
set -eu

template="$(dirname "$0")/users.acl"
folder="${1:?usage: make-secrets.sh FOLDER}"

# The folder is for its owner. The files are for whoever gets in, or gets one mounted: the server's user.
mkdir -p "$folder"
chmod 700 "$folder"
umask 022

password() {
    [ -s "$folder/$1" ] || od -An -vtx1 -N32 /dev/urandom | tr -d ' \n' >"$folder/$1"
}

sha256() {
    if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi
}

hashes() {
    for file in "$folder/$1" "$folder/$1-before"; do
        [ ! -s "$file" ] || tr -d '\n' <"$file" | sha256 | sed 's/\([0-9a-f]*\).*/#\1 /'
    done | tr -d '\n'
}

password redlock-password
password admin-password
sed -e '/^#/d' -e '/^$/d' \
    -e "s/#REDLOCK/$(hashes redlock-password)/" -e "s/#ADMIN/$(hashes admin-password)/" "$template" |
    awk '/^user/ { printf "%s", end } { $1 = $1; printf "%s ", $0; end = "\n" } END { print "" }' \
    >"$folder/users.acl"
