#!/bin/sh
# make-secrets.sh FOLDER: the secrets of masters and services.
#
#   users.acl          for the masters: users, with the hashes of the passwords
#   redlock-password   for services and for health checks
#   admin-password     for people; keep it elsewhere
#
# An existing password is kept: run this script again after a change of users.acl. For a new password, rename
# the old file to redlock-password-before. Both passwords are valid until that file is deleted and this script
# has run again. Files are written in place, so containers that mount them see the new content. ACL LOAD makes
# a master read it.
set -eu

template="$(dirname "$0")/users.acl"
folder="${1:?usage: make-secrets.sh FOLDER}"

# Only the owner may enter the folder. The server's user, in a container that mounts a file, may read the files.
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
